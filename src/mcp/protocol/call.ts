/**
 * One MCP request inside the gateway. The side that expects the response implements `Call`; the side that runs the
 * request returns a `CallHandle`. A `Question` is a request of a server to the client.
 */

import { surface } from "../../base/errors.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { Attributes } from "../../core/attributes.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { type ClientRequest, INTERNAL_ERROR, type ServerMessage } from "./json-rpc.ts";

/** Error codes for a server that failed or could not be reached. */
export type ServerError = "backend_unavailable" | "backend_timeout" | "overloaded";

/** The server requires a token, or another one than it received. */
export interface LoginRequired {
  /** 403 means that the token is valid but has insufficient scope. */
  readonly status: 401 | 403;
  /** The server's `www-authenticate`, if it is relayed to the client. */
  readonly challenge: string | undefined;
}

export const LOGIN_REQUIRED: LoginRequired = { status: 401, challenge: undefined };

export function isLoginRequired(error: unknown): error is LoginRequired {
  return typeof error === "object" && (error as LoginRequired | null)?.status === 401;
}

/** The reason why a call has no response of the server. */
export interface Failure {
  /** The code of the JSON-RPC error. */
  readonly code: number;
  readonly message: string;
  /** The HTTP status, if the head of the response was not sent yet. */
  readonly status: number;
  readonly data?: unknown;
  /** The error code in the request records. Undefined for a protocol error. */
  readonly error?: ServerError | LoginRequired | "authorization_denied";
  /** The reason for the request records, instead of `message`. */
  readonly detail?: string;
}

/** The part of a target that reports use. */
export interface RoutedTarget {
  readonly name: string;
  /** Redacts the target's secrets from a string. */
  shown(text: string): string;
}

/** Reports a finding of a guard in shadow mode. Findings with the same `rule` are grouped. */
export type ShadowReporter = (detail: string, rule: string) => void;

export interface Call {
  /** The client's request, with the server's own names. */
  readonly request: ClientRequest;
  /** The headers of the client's HTTP request. A target forwards only the configured ones. */
  readonly headers?: HeaderList | undefined;
  /** The attributes of the client's request for CEL expressions; undefined for calls of the gateway itself. */
  readonly caller?: Attributes | undefined;
  /** Receives findings of guards in shadow mode; undefined for calls of the gateway itself. */
  readonly watched?: ShadowReporter | undefined;
  /** Records the messages of the call; undefined unless the client's request is traced. */
  readonly wire?: WireTap | undefined;
  /** Reports the target that serves the call. Not called if several targets do. */
  routed?(target: RoutedTarget): void;
  /** Receives a notification of the server about this call. */
  notified(message: ServerMessage): void;
  /** Receives a request of the server that belongs to this call. */
  asked(question: Question): void;
  /** Receives the result or the error. Its id is not the client's. */
  answered(message: ServerMessage): void;
  failed(failure: Failure): void;
}

export interface CallHandle {
  /** Cancels the call at the server. Neither `answered` nor `failed` is called afterward. */
  cancel(reason: string | undefined): void;
}

export interface Question {
  /** The request with the server's own id. */
  readonly message: ServerMessage;
  readonly method: string;
  /** Responds to the server. `outcome` is a `"result":…` or `"error":…` member as JSON. */
  answer(outcome: string, wire?: WireTap): void;
  /** Called when the server withdraws the request. */
  withdrawn: ((reason: string | undefined) => void) | undefined;
}

/**
 * Rejects a question during a call of the gateway itself. A response is required, because open questions disable
 * timeouts.
 */
export function refuseQuestion(question: Question): void {
  question.answer('"error":{"code":-32601,"message":"The client cannot be asked now"}');
}

/**
 * A failure of a server. It has status 200, because SDKs hide the body of a response with an error status. Only a limit
 * of the gateway has an error status, because clients use it to retry.
 */
export function serverFailure(message: string, error: ServerError | LoginRequired = "backend_unavailable"): Failure {
  return { code: INTERNAL_ERROR, status: statusOf(error), message, error };
}

function statusOf(error: ServerError | LoginRequired): number {
  if (typeof error === "object") return error.challenge === undefined ? 200 : error.status;
  return error === "overloaded" ? 503 : 200;
}

/** Whether the failure is a login challenge that is relayed to the client. */
export function isChallenge({ error }: Failure): boolean {
  return typeof error === "object" && error.challenge !== undefined;
}

/** Headers for a response with the failure's status: name, value, … */
export function failureHeaders({ status, error }: Failure): readonly string[] {
  if (typeof error === "object" && error.challenge !== undefined) return ["www-authenticate", error.challenge];
  return status === 503 ? ["retry-after", "5"] : [];
}

export const NO_CALL: CallHandle = { cancel: () => undefined };

/**
 * Runs the work, in slices for a large message. Exceptions in slices go to `failed`; others are thrown to the caller.
 */
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
  runInSlices(work(), () => false)
    .then(done)
    .catch((error: unknown) => {
      surface(error);
      failed(serverFailure("the response could not be processed"));
    });
}

/** Wraps a call so that `change` is applied to its result. */
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

/** Like `withAnswer`, in slices for a large result. */
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
