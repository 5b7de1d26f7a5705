/**
 * The client's side of a call, where challenges of the server are passed on: they name the gateway's documents instead
 * of the server's. Everything else passes as it is.
 */
import type { Duplex } from "node:stream";
import type { BackendCall, BackendProblem } from "../core/backend.ts";
import type { Sent } from "../core/wire.ts";
import type { HeaderList } from "../http/headers.ts";

export class RelayedCall implements BackendCall {
  readonly #call: BackendCall;
  readonly #challenge: (text: string) => string;

  constructor(call: BackendCall, challenge: (text: string) => string) {
    this.#call = call;
    this.#challenge = challenge;
  }

  head(status: number, headers: HeaderList): void {
    const text = headers.get("www-authenticate");
    if (text !== undefined) headers.set("www-authenticate", this.#challenge(text));
    this.#call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    return this.#call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    this.#call.end(trailers);
  }

  problem(problem: BackendProblem): void {
    this.#call.problem(problem);
  }

  fail(error: unknown): void {
    this.#call.fail(error);
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    this.#call.upgraded(status, headers, socket);
  }

  attempt(target: string, sent?: Sent): void {
    this.#call.attempt(target, sent);
  }

  received(status: number, headers: HeaderList, target?: string): void {
    this.#call.received(status, headers, target);
  }

  missed(reason: string, target?: string): void {
    this.#call.missed(reason, target);
  }
}
