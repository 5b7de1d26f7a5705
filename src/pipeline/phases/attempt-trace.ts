/**
 * What the trace and the spans say of one attempt: each request as it was sent, each response head as it came, each failure. Costs
 * nothing while no client watches.
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import { receivedState, requestState, sentState } from "../../core/snapshot.ts";
import type { Sent } from "../../core/wire.ts";
import { HeaderList } from "../../http/headers.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import { bodyBytes, captureSentBody } from "../records/body-capture.ts";

export interface AttemptTraceEnv {
  readonly clock: Clock;
  readonly redaction: Redaction;
}

export class AttemptTrace {
  readonly #exchange: Exchange;
  readonly #env: AttemptTraceEnv;
  /** Since when the target is asked, how, and whether its response was reported. */
  #askedMs: number;
  #askedOver: Sent["over"] = "http";
  #hasResult = false;

  constructor(exchange: Exchange, env: AttemptTraceEnv) {
    this.#exchange = exchange;
    this.#env = env;
    this.#askedMs = exchange.isWatched ? env.clock.monotonicMs() : 0;
  }

  asked(target: string, sent: Sent | undefined): void {
    const {
      trace,
      records: { spans },
      request,
    } = this.#exchange;
    if (!this.#exchange.isWatched) return;
    const { clock, redaction } = this.#env;
    this.#askedMs = clock.monotonicMs();
    this.#askedOver = sent?.over ?? "http";
    this.#hasResult = false;
    spans?.asked(target, this.#askedMs);
    if (trace === undefined) return;
    const state = sent ? sentState(this.#exchange, target, sent, redaction) : requestState(this.#exchange, redaction);
    trace.point({ type: "requestSnapshot", stage: "final request", requestState: state });
    trace.point({ type: "backendCallStart", target });
    const { headers, body } = request;
    if (sent === undefined) captureSentBody(trace, bodyBytes(body), headers.get("content-type"));
    else if (sent.over === "stdio") captureSentBody(trace, Buffer.from(sent.line), "application/json");
    else captureSentBody(trace, sent.request.body, sent.request.headers.get("content-type"));
  }

  received(status: number, headers: HeaderList, target?: string): void {
    const { trace } = this.#exchange;
    this.#result(status, null, target);
    if (trace === undefined) return;
    const state = receivedState(this.#exchange, status, headers, this.#env.redaction, this.#env.clock);
    trace.point({ type: "responseSnapshot", stage: "raw response", requestState: state });
  }

  /** The head that the client gets is the one that came, unless the backend has already reported that one. */
  head(status: number, headers: HeaderList): void {
    if (this.#hasResult) return;
    // A pipe has no headers: those that the client gets are ours.
    this.received(status, this.#askedOver === "stdio" ? NO_HEADERS : headers);
  }

  /** One target did not answer. Of several at once each is reported by its name; of a sequence, the last. */
  missed(reason: string, target: string | undefined): void {
    if (!this.#hasResult || target !== undefined) this.#result(null, reason, target);
  }

  failed(reason: string): void {
    this.#result(null, reason);
  }

  #result(status: number | null, error: string | null, target?: string): void {
    const {
      trace,
      records: { spans },
    } = this.#exchange;
    if (!this.#exchange.isWatched) return;
    spans?.answered(status, error, target, this.#env.clock.monotonicMs());
    const severity = error !== null || (status ?? 0) >= 500 ? "error" : (status ?? 0) >= 400 ? "warn" : "info";
    this.#hasResult = true;
    const whose = target === undefined ? {} : { target };
    trace?.span(this.#askedMs, { type: "backendCallResult", status, error, ...whose }, severity);
  }
}

const NO_HEADERS = new HeaderList();
