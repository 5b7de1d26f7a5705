/**
 * The requests of a session that have no answer yet: each is in here from its start until it is finished, cancelled by
 * its client or abandoned with the session.
 */
import { LinkedList } from "../../base/linked-list.ts";
import { find, slice } from "../../json/json-text.ts";
import type { ClientNotification } from "../protocol/json-rpc.ts";
import type { RequestCall } from "./session-call.ts";

export class RunningCalls {
  readonly #calls = new LinkedList<RequestCall>();

  get size(): number {
    return this.#calls.size;
  }

  add(call: RequestCall): void {
    this.#calls.add(call);
  }

  remove(call: RequestCall): void {
    this.#calls.remove(call);
  }

  abandon(reason: string): void {
    this.#calls.each((call) => call.abandon(reason));
  }

  /** The client takes one of its requests back. False if it does not run here. */
  cancel({ params, text }: ClientNotification): boolean {
    const span = find(text, 0, "params", "requestId");
    const id = span && slice(text, span);
    const reason = typeof params.reason === "string" ? params.reason : undefined;
    const call = this.#calls.find(({ request }) => request.id === id);
    call?.cancel(reason);
    return call !== undefined;
  }
}
