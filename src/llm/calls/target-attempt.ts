/**
 * One target of a call being asked. A failure before the answer is the client's gives it up for the next target, if there
 * is one. The answer becomes the client's with its head; with its first byte where that has a time limit; and with its
 * end where an error must be read first. What it may rely on is the contract of `ResponseHandler`: nothing is called
 * after `http.abort()`, so that there is nothing to remember about being given up.
 */

import type { Clock } from "../../base/clock.ts";
import { GatewayError } from "../../core/errors.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { HttpCall, HttpClientError, ResponseHandler } from "../../http/http-client.ts";
import { doubt } from "../credentials/credential.ts";
import type { FailoverRules } from "../models/failover-rules.ts";
import type { Candidate } from "../models/model-table.ts";
import type { Target } from "../models/target.ts";
import { isContextLengthError } from "../request/llm-errors.ts";
import { retryAfterSeconds } from "../request/provider.ts";
import type { TapReport } from "../usage/response-usage.ts";
import { AnswerWatch } from "./answer-watch.ts";
import type { Answer } from "./native-answer.ts";
import type { CallSettlement } from "./settlement.ts";
import type { UpstreamPlan } from "./upstream-request.ts";

/** The run that the attempt belongs to. */
export interface AttemptOwner {
  readonly hasNext: boolean;
  readonly rules: FailoverRules;
  readonly clock: Clock;
  /** A head as it came from the target. */
  received(status: number, headers: HeaderList): void;
  /** The target failed; the next one is asked. */
  giveUp(target: Target, failure: TargetFailure): void;
  /** The way of an answer to the client; undefined if nobody waits for it. */
  answerOf(status: number, plan: UpstreamPlan): Answer | undefined;
  refuseRedirect(): void;
  /** The answer ended or broke off. False if the run was over before. */
  finish(event: "end" | "error"): boolean;
  fail(error: unknown): void;
  /** The answer was lost while its end was handled. */
  lose(error: unknown): void;
}

export interface TargetFailure {
  /** For the log and the trace. */
  readonly reason: string;
  /** For the metric: a status or a word. */
  readonly cause: string;
  readonly retryAfterSeconds?: number | undefined;
  /** False if the request is at fault rather than the target. */
  readonly rests: boolean;
}

/** The provider was asked and reads the prompt, whether anybody waits for its answer or not: the question is charged. */
export const NOTHING_HEARD: TapReport = {
  usage: undefined,
  responseModel: undefined,
  uncountedTokens: 0,
  complete: false,
};

/** An error of that size says what it is; a longer one is passed on as it comes. */
const MAX_ERROR_BYTES = 64 * 1024;

/** A head that is not the client's yet. */
interface Held {
  readonly status: number;
  readonly headers: HeaderList;
  /** Of an error that is read before it is decided; undefined while a first byte is awaited. */
  readonly error: Buffer[] | undefined;
}

export class TargetAttempt implements ResponseHandler {
  readonly candidate: Candidate;
  readonly #owner: AttemptOwner;
  readonly #plan: UpstreamPlan;
  /** Held from the moment it is sent; nothing is called before. */
  #http: HttpCall | undefined = undefined;
  #watch: AnswerWatch | undefined = undefined;
  #held: Held | undefined = undefined;
  #heldBytes = 0;
  #answer: Answer | undefined = undefined;

  constructor(owner: AttemptOwner, candidate: Candidate, plan: UpstreamPlan) {
    this.#owner = owner;
    this.candidate = candidate;
    this.#plan = plan;
  }

  sent(http: HttpCall): void {
    this.#http = http;
    const { timeouts } = this.candidate.target;
    if (timeouts) this.#watch = new AnswerWatch(this.#owner.clock, timeouts, (detail) => this.#tooSlow(detail));
  }

  /** Nothing of it is wanted any more. */
  drop(): void {
    this.#watch?.stop();
    this.#http?.abort();
  }

  resume(): void {
    this.#watch?.resumed();
    this.#http?.resume();
  }

  /** Of a request in parts: an answer to one of them is coming. */
  heard(): void {
    this.#watch?.heard(true);
  }

  head(status: number, headers: HeaderList): void {
    const { target } = this.candidate;
    const { rules } = this.#owner;
    this.#owner.received(status, headers);
    if (status === 401 || status === 403) doubt(target.credential);
    const ownKey = target.credential.kind !== "client";
    const rests = rules.rests(status, ownKey);
    if (rules.onStatus(status, ownKey) && this.#owner.hasNext) {
      this.#giveUp({
        reason: `status ${status}`,
        cause: String(status),
        retryAfterSeconds: retryAfterSeconds(headers, this.#owner.clock.now()),
        rests,
      });
      return;
    }
    if (status >= 300 && status < 400) {
      this.drop();
      this.#owner.refuseRedirect();
      return;
    }
    const isTooLong = (status === 400 || status === 413) && rules.onContextLength && this.#owner.hasNext;
    if (isTooLong) this.#held = { status, headers, error: [] };
    else if (status < 400 && target.timeouts?.firstByteMs !== undefined)
      this.#held = { status, headers, error: undefined };
    else {
      if (rests) target.health.failed(retryAfterSeconds(headers, this.#owner.clock.now()));
      else target.health.worked();
      this.#open(status, headers);
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#held) {
      const { error } = this.#held;
      error?.push(chunk);
      this.#heldBytes += chunk.length;
      if (error && this.#heldBytes <= MAX_ERROR_BYTES) return true;
      this.#release();
      if (error) return true;
    }
    const goesOn = this.#answer?.data(chunk) ?? true;
    this.#watch?.heard(goesOn);
    return goesOn;
  }

  text(text: string, framed: string): boolean {
    const answer = this.#answer;
    if (this.#held !== undefined || answer?.text === undefined) return this.data(Buffer.from(text, "latin1"));
    const goesOn = answer.text(text, framed);
    this.#watch?.heard(goesOn);
    return goesOn;
  }

  end(trailers: readonly string[]): void {
    this.#watch?.stop();
    const error = this.#held?.error;
    if (error && isContextLengthError(Buffer.concat(error).toString("utf8")) && this.#owner.hasNext) {
      this.#giveUp({ reason: "the prompt is too long for its model", cause: "context_length", rests: false });
      return;
    }
    if (this.#held) this.#release();
    if (this.#owner.finish("end")) this.#answer?.end(trailers);
  }

  error(error: HttpClientError): void {
    this.#watch?.stop();
    const { target } = this.candidate;
    // What cannot be sent, or what we cannot take, is no fault of the target.
    const isItsFault = error.kind !== "request" && error.kind !== "internal";
    if (this.#answer) this.#breakOff(error);
    else if (isItsFault && this.#owner.hasNext)
      this.#giveUp({ reason: error.message, cause: "connection", rests: true });
    else {
      if (isItsFault) target.health.failed(undefined);
      this.#owner.fail(error);
    }
  }

  /** The client left. */
  abandon(settlement: CallSettlement): void {
    this.drop();
    if (this.#answer) this.#answer.abort();
    // What the parts of a request used was told when they were dropped.
    else if (this.#held?.error || this.#plan.more.length > 0) settlement.nothing("aborted");
    else settlement.counted(NOTHING_HEARD);
  }

  #giveUp(failure: TargetFailure): void {
    this.drop();
    this.#owner.giveUp(this.candidate.target, failure);
  }

  #open(status: number, headers: HeaderList): void {
    this.#answer = this.#owner.answerOf(status, this.#plan);
    this.#answer?.head(status, headers);
  }

  /** What was held is the client's after all. */
  #release(): void {
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
    this.candidate.target.health.worked();
    this.#open(held.status, held.headers);
    for (const chunk of held.error ?? []) this.#answer?.data(chunk);
  }

  #tooSlow(detail: string): void {
    this.drop();
    const error = new GatewayError("backend_timeout", { detail });
    if (this.#answer) this.#breakOff(error);
    else if (this.#owner.hasNext)
      this.#owner.giveUp(this.candidate.target, { reason: detail, cause: "timeout", rests: true });
    else {
      this.candidate.target.health.failed(undefined);
      this.#owner.fail(error);
    }
  }

  #breakOff(error: HttpClientError | GatewayError): void {
    if (this.#owner.finish("error")) this.#answer?.fail(error);
    else this.#owner.lose(error);
  }
}
