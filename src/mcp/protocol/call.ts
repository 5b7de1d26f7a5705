/**
 * One request on its way through the gateway, as the two sides see it: whoever wants an answer implements Call,
 * whoever runs it returns CallHandle. Questions are requests of a server to the client.
 */

import { surface } from "../../base/errors.ts";
import { finish, inTurns, SLICED_BYTES, type Steps } from "../../base/turns.ts";
import type { AttributeSource } from "../../cel/expression.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { type ClientRequest, INTERNAL_ERROR, type ServerMessage } from "./json-rpc.ts";

/** What is wrong with a server, or with our way to it, in the words of the error catalogue. */
export type ServerError = "backend_unavailable" | "backend_timeout" | "overloaded";

/** The server wants a token that it was not sent, or another one. */
export interface LoginRequired {
  /** 403: the token is good, but not for this. */
  readonly status: 401 | 403;
  /** Its `www-authenticate`, where it is to reach the client. */
  readonly challenge: string | undefined;
}

export const LOGIN_REQUIRED: LoginRequired = { status: 401, challenge: undefined };

export function isLoginRequired(error: unknown): error is LoginRequired {
  return typeof error === "object" && (error as LoginRequired | null)?.status === 401;
}

/** Why there is no answer from the server. */
export interface Failure {
  /** Of the JSON-RPC error. */
  readonly code: number;
  readonly message: string;
  /** Of the HTTP answer, if nothing was sent to the client yet. */
  readonly status: number;
  readonly data?: unknown;
  /** What the records know it by; without one it is an error of the protocol. */
  readonly error?: ServerError | LoginRequired | "authorization_denied";
  /** Said to the records instead of the message. */
  readonly detail?: string;
}

/** A target, as whoever tells of a call needs it. */
export interface RoutedTarget {
  readonly name: string;
  /** A text of the server without the secrets that it was given. */
  shown(text: string): string;
}

/** `rule` is what the same findings have in common. */
export type ShadowReporter = (detail: string, rule: string) => void;

export interface Call {
  /** In the words of the client, with names as the server knows them. */
  readonly request: ClientRequest;
  /** Of the client's HTTP request; a target passes on only what its configuration names. */
  readonly headers?: HeaderList | undefined;
  /** What expressions may read of the client's request; undefined for calls of the gateway's own. */
  readonly caller?: AttributeSource | undefined;
  /** Hears what guards in shadow mode would do with the answer; undefined for calls of the gateway's own. */
  readonly watched?: ShadowReporter | undefined;
  /** Told what is sent to servers for it and what they answer; undefined unless the client's request is traced. */
  readonly wire?: WireTap | undefined;
  /** This target serves it; not told where it is for several. */
  routed?(target: RoutedTarget): void;
  /** A notification of the server about this call. */
  notified(message: ServerMessage): void;
  /** A request of the server that belongs to this call. */
  asked(question: Question): void;
  /** The result or the error. Its id is not the client's. */
  answered(message: ServerMessage): void;
  failed(failure: Failure): void;
}

export interface CallHandle {
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

/**
 * A failure of a server behind us. SDKs hide the body of an answer whose status is an error, so it travels with 200;
 * only a limit of ours is told by the status, because clients try again by it.
 */
export function serverFailure(message: string, error: ServerError | LoginRequired = "backend_unavailable"): Failure {
  return { code: INTERNAL_ERROR, status: statusOf(error), message, error };
}

function statusOf(error: ServerError | LoginRequired): number {
  if (typeof error === "object") return error.challenge === undefined ? 200 : error.status;
  return error === "overloaded" ? 503 : 200;
}

/** The server's wish for a login is to reach the client. */
export function isChallenge({ error }: Failure): boolean {
  return typeof error === "object" && error.challenge !== undefined;
}

/** Headers that go with the failure, where its status tells of it: name, value, … */
export function failureHeaders({ status, error }: Failure): readonly string[] {
  if (typeof error === "object" && error.challenge !== undefined) return ["www-authenticate", error.challenge];
  return status === 503 ? ["retry-after", "5"] : [];
}

export const NO_CALL: CallHandle = { cancel: () => undefined };

/** `failed` is told if the work throws in a later turn; at once it throws to the caller. */
export function runMessageSteps<T>(
  { text }: Pick<ServerMessage, "text">,
  work: () => Steps<T>,
  done: (result: T) => void,
  failed: (failure: Failure) => void,
): void {
  runSteps(text.length > SLICED_BYTES, work, done, failed);
}

export function runSteps<T>(
  isLarge: boolean,
  work: () => Steps<T>,
  done: (result: T) => void,
  failed: (failure: Failure) => void,
): void {
  if (!isLarge) {
    done(finish(work()));
    return;
  }
  inTurns(work(), () => false)
    .then(done)
    .catch((error: unknown) => {
      surface(error);
      failed(serverFailure("the answer could not be handled"));
    });
}

/** The same call with its answer changed on the way back. */
export function withAnswer(call: Call, change: (message: ServerMessage) => ServerMessage): Call {
  return {
    request: call.request,
    headers: call.headers,
    caller: call.caller,
    watched: call.watched,
    wire: call.wire,
    notified: (message) => call.notified(message),
    asked: (question) => call.asked(question),
    answered: (message) => call.answered(message.kind === "result" ? change(message) : message),
    failed: (failure) => call.failed(failure),
  };
}

/** The same, in turns with others where the answer is large. */
export function withAnswerInTurns(call: Call, change: (message: ServerMessage) => Steps<ServerMessage>): Call {
  return {
    ...withAnswer(call, (message) => message),
    answered(message) {
      if (message.kind !== "result") call.answered(message);
      else
        runMessageSteps(
          message,
          () => change(message),
          (changed) => call.answered(changed),
          (failure) => call.failed(failure),
        );
    },
  };
}
