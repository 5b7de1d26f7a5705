/**
 * Provides the base class of response filters, which forwards the events that a filter does not inspect.
 */
import type { Duplex } from "node:stream";
import type { HeaderList } from "../http/headers.ts";
import type { BackendProblem, ResponseReceiver } from "./backend.ts";
import type { ServedModel } from "./exchange.ts";
import type { AttemptFailure, Targets } from "./targets.ts";
import type { Sent } from "./wire.ts";

export abstract class ResponseFilter implements ResponseReceiver {
  protected readonly call: ResponseReceiver;

  constructor(call: ResponseReceiver) {
    this.call = call;
  }

  abstract head(status: number, headers: HeaderList): void;
  abstract data(chunk: Buffer): boolean;
  abstract end(trailers?: readonly string[]): void;
  abstract fail(error: unknown): void;

  get isWatched(): boolean {
    return this.call.isWatched;
  }

  requestSent(): void {
    this.call.requestSent();
  }

  resultReceived(): void {
    this.call.resultReceived();
  }

  attempt(target: string, sent?: Sent, served?: ServedModel, targets?: Targets): void {
    this.call.attempt(target, sent, served, targets);
  }

  received(status: number, headers: HeaderList, target?: string): void {
    this.call.received(status, headers, target);
  }

  missed(reason: string, target: string): void {
    this.call.missed(reason, target);
  }

  next<Failure extends AttemptFailure>(targets: Targets<Failure>, failure: Failure): boolean {
    return this.call.next(targets, failure);
  }

  problem(problem: BackendProblem): void {
    this.call.problem(problem);
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    this.call.upgraded(status, headers, socket);
  }
}
