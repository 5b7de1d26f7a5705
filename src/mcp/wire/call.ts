/**
 * One request on its way through the gateway, as the two sides see it: whoever wants an answer implements Call,
 * whoever runs it returns Running. Questions are requests of a server to the client.
 */
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import type { ClientRequest, ServerMessage } from "./json-rpc.ts";

/** Why there is no answer from the server. */
export interface Failure {
  /** Of the JSON-RPC error. */
  readonly code: number;
  readonly message: string;
  /** If nothing was sent to the client yet. */
  readonly status: number;
  readonly data?: unknown;
}

export interface Call {
  /** In the words of the client, with names as the server knows them. */
  readonly request: ClientRequest;
  /** Of the client's HTTP request; a target passes on only what its configuration names. */
  readonly headers?: HeaderList | undefined;
  /** Told what is sent to servers for it and what they answer; undefined unless the client's request is traced. */
  readonly wire?: WireTap | undefined;
  /** A notification of the server about this call. */
  notified(message: ServerMessage): void;
  /** A request of the server that belongs to this call. */
  asked(question: Question): void;
  /** The result or the error. Its id is not the client's. */
  answered(message: ServerMessage): void;
  failed(failure: Failure): void;
}

export interface Running {
  /** Nobody waits any more: the server is told. Neither `answered` nor `failed` follows. */
  cancel(reason: string | undefined): void;
}

export interface Question {
  /** Its id is the server's own. */
  readonly message: ServerMessage;
  readonly method: string;
  /** `outcome` is the text of a `"result":…` or `"error":…` member; `wire` as of a call. */
  answer(outcome: string, wire?: WireTap): void;
  /** Called when the server no longer wants an answer. */
  withdrawn: ((reason: string | undefined) => void) | undefined;
}

/** For calls of our own: an answer must come, because a server that waits for one is not timed. */
export function refuseQuestion(question: Question): void {
  question.answer('"error":{"code":-32601,"message":"The client cannot be asked now"}');
}

export const NOTHING_RUNS: Running = { cancel: () => undefined };
