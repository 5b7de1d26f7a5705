/**
 * Responds to failures with an error response if no response has started, and otherwise closes the connection. The
 * first error response passes the response hooks, a second one skips them, and a third failure closes the connection.
 */
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { asGatewayError, errorReply, type Reply } from "../../core/reply.ts";
import type { Route } from "../../core/topology.ts";
import type { Delivery } from "./delivery.ts";
import type { PipelineEnv } from "./pipeline-env.ts";

const MAX_FAILURES = 2;

export type FailureEnv = Pick<PipelineEnv, "redaction" | "defect">;

export type FailureDelivery = Pick<Delivery, "run" | "isDone" | "canReplace" | "reply" | "breakOff">;

/** Returns the error in the format of the route's first backend that has one, or undefined. */
export function backendErrorReply(
  route: Route | undefined,
  exchange: Exchange,
  error: GatewayError,
): Reply | undefined {
  for (const { backend } of route?.backends ?? []) if (backend.errorReply) return backend.errorReply(exchange, error);
  return undefined;
}

export class Failures {
  readonly #env: FailureEnv;
  readonly #exchange: Exchange;
  readonly #delivery: FailureDelivery;
  readonly #shape: (error: GatewayError) => Reply | undefined;
  #count = 0;

  constructor(
    env: FailureEnv,
    exchange: Exchange,
    delivery: FailureDelivery,
    shape: (error: GatewayError) => Reply | undefined,
  ) {
    this.#env = env;
    this.#exchange = exchange;
    this.#delivery = delivery;
    this.#shape = shape;
  }

  answer(thrown: unknown): void {
    const error = asGatewayError(thrown);
    if (error.code === "internal") this.#env.defect(this.#exchange, error.cause ?? error);
    if (this.#delivery.isDone) return;
    this.#note(error);
    const { run } = this.#delivery;
    this.#delivery.run = undefined;
    run?.abort();
    if (!this.#delivery.canReplace || this.#count >= MAX_FAILURES) {
      this.#delivery.breakOff();
      return;
    }
    this.#count += 1;
    try {
      this.#delivery.reply(this.#shape(error) ?? errorReply(error), this.#count === 1);
    } catch (again) {
      this.answer(again);
    }
  }

  /** A reason may quote the client's request, so credentials are redacted in the log and the trace. */
  #note({ code, source, message, detail }: GatewayError): void {
    const {
      request,
      credentials: { secrets },
    } = this.#exchange;
    const shown = detail && this.#env.redaction.scrub(detail, request.headers.pairs, secrets);
    this.#exchange.failure = { code, source, message, detail: shown };
  }
}
