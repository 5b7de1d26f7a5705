/**
 * One target of a call being asked. A failure before the head gives it up for the next target, if there is one; from the
 * head on the answer is the client's. What it may rely on is the contract of `ResponseHandler`: nothing is called after
 * `http.abort()`, so that there is nothing to remember about being given up.
 */
import type { HeaderList } from "../../lib/http/headers.ts";
import type { HttpCall, HttpClientError, ResponseHandler } from "../../lib/http/http-client.ts";
import type { TapReport } from "../../llm/usage/usage-tap.ts";
import type { Answer } from "./answers/native-answer.ts";
import type { CallSettlement } from "./answers/settlement.ts";
import { doubt } from "./credentials/credential.ts";
import type { Candidate } from "./models/model-table.ts";
import type { Target } from "./models/target.ts";
import type { UpstreamPlan } from "./requests/upstream-request.ts";

/** The run that the attempt belongs to. */
export interface AttemptOwner {
  readonly hasNext: boolean;
  /** A head as it came from the target. */
  received(status: number, headers: HeaderList): void;
  /** The target failed; the next one is asked. */
  giveUp(target: Target, reason: string, retryAfterSeconds: number | undefined): void;
  /** The way of an answer to the client; undefined if nobody waits for it. */
  answerOf(status: number, plan: UpstreamPlan): Answer | undefined;
  refuseRedirect(): void;
  /** The answer ended or broke off. False if the run was over before. */
  finish(event: "end" | "error"): boolean;
  fail(error: unknown): void;
  /** The answer was lost while its end was handled. */
  lose(error: unknown): void;
}

/** The provider was asked and reads the prompt, whether anybody waits for its answer or not: the question is charged. */
export const NOTHING_HEARD: TapReport = {
  usage: undefined,
  responseModel: undefined,
  uncountedTokens: 0,
  complete: false,
};

export class TargetAttempt implements ResponseHandler {
  readonly candidate: Candidate;
  /** Held from the moment it is sent; nothing is called before. */
  http: HttpCall | undefined = undefined;
  readonly #owner: AttemptOwner;
  readonly #plan: UpstreamPlan;
  #answer: Answer | undefined = undefined;

  constructor(owner: AttemptOwner, candidate: Candidate, plan: UpstreamPlan) {
    this.#owner = owner;
    this.candidate = candidate;
    this.#plan = plan;
  }

  head(status: number, headers: HeaderList): void {
    const { target } = this.candidate;
    this.#owner.received(status, headers);
    if (isFailure(status)) {
      if (this.#owner.hasNext) {
        this.http?.abort();
        this.#owner.giveUp(target, `status ${status}`, retryAfter(headers));
        return;
      }
      target.health.failed(retryAfter(headers));
    } else target.health.worked();
    if (status >= 300 && status < 400) {
      this.http?.abort();
      this.#owner.refuseRedirect();
      return;
    }
    if (status === 401 || status === 403) doubt(target.credential);
    this.#answer = this.#owner.answerOf(status, this.#plan);
    this.#answer?.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    return this.#answer?.data(chunk) ?? true;
  }

  end(trailers: readonly string[]): void {
    if (this.#owner.finish("end")) this.#answer?.end(trailers);
  }

  error(error: HttpClientError): void {
    const { target } = this.candidate;
    // What cannot be sent, or what we cannot take, is no fault of the target.
    const isItsFault = error.kind !== "request" && error.kind !== "internal";
    if (this.#answer) {
      if (this.#owner.finish("error")) this.#answer.fail(error);
      else this.#owner.lose(error);
    } else if (isItsFault && this.#owner.hasNext) this.#owner.giveUp(target, error.message, undefined);
    else {
      if (isItsFault) target.health.failed(undefined);
      this.#owner.fail(error);
    }
  }

  /** The client left. */
  abandon(settlement: CallSettlement): void {
    this.http?.abort();
    if (this.#answer) this.#answer.abort();
    else settlement.counted(NOTHING_HEARD);
  }
}

function isFailure(status: number): boolean {
  return status === 429 || status >= 500;
}

function retryAfter(headers: HeaderList): number | undefined {
  const seconds = Number(headers.get("retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds : undefined;
}
