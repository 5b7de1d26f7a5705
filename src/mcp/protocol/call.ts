/**
 * Models one MCP request inside the gateway. The receiver of the response implements `Call`, and the code that runs the
 * request returns a `CallHandle`. A `Question` is a request from a server to the client.
 */

import { surface } from "../../base/errors.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { type ClientRequest, INTERNAL_ERROR, type ServerMessage } from "./json-rpc.ts";

export type ServerError = "backend_unavailable" | "backend_timeout" | "overloaded";

export interface LoginRequired {
  /** Status 403 means that the token is valid but has insufficient scope. */
  readonly status: 401 | 403;
  /** The server's `www-authenticate` value, if the gateway relays it to the client. */
  readonly challenge: string | undefined;
}

export const LOGIN_REQUIRED: LoginRequired = { status: 401, challenge: undefined };

export function isLoginRequired(error: unknown): error is LoginRequired {
  return typeof error === "object" && (error as LoginRequired | null)?.status === 401;
}

export interface Failure {
  readonly code: number;
  readonly message: string;
  /** The HTTP status applies only if the response head has not been sent yet. */
  readonly status: number;
  readonly data?: unknown;
  /** Classifies the failure for the request records. */
  readonly error?: ServerError | LoginRequired | "authorization_denied";
  readonly detail?: string;
}

export interface RoutedTarget {
  readonly name: string;
  shown(text: string): string;
}

export type ShadowReporter = (detail: string, rule: string) => void;

/** Reports that a guard changed or rejected a message. */
export type GuardReporter = (result: "masked" | "rejected", guard: "argumentGuard" | "resultGuard") => void;

export interface Call {
  readonly request: ClientRequest;
  readonly headers?: HeaderList | undefined;
  readonly caller?: CelAttributes | undefined;
  readonly watched?: ShadowReporter | undefined;
  readonly guarded?: GuardReporter | undefined;
  readonly wire?: WireTap | undefined;
  routed?(target: RoutedTarget): void;
  notified(message: ServerMessage): void;
  asked(question: Question): void;
  /** Receives the result or the error. The id of the message may differ from the client's id. */
  answered(message: ServerMessage): void;
  failed(failure: Failure): void;
}

export interface CallHandle {
  cancel(reason: string | undefined): void;
}

export interface Question {
  readonly message: ServerMessage;
  readonly method: string;
  /** Responds to the server. `outcome` is a `"result":…` or `"error":…` member in JSON. */
  answer(outcome: string, wire?: WireTap): void;
  withdrawn: ((reason: string | undefined) => void) | undefined;
}

/**
 * Rejects a server's request that cannot be forwarded to the client. An open request would pause the inactivity
 * timeout.
 */
export function refuseQuestion(question: Question): void {
  question.answer('"error":{"code":-32601,"message":"The client cannot be asked now"}');
}

/**
 * Uses status 200, because SDKs hide the body of a response with an error status. Overload uses 503, which tells
 * clients to retry, and a relayed login challenge keeps its status.
 */
export function serverFailure(message: string, error: ServerError | LoginRequired = "backend_unavailable"): Failure {
  return { code: INTERNAL_ERROR, status: failureStatus(error), message, error };
}

function failureStatus(error: ServerError | LoginRequired): number {
  if (typeof error === "object") return error.challenge === undefined ? 200 : error.status;
  return error === "overloaded" ? 503 : 200;
}

export function isChallenge({ error }: Failure): boolean {
  return typeof error === "object" && error.challenge !== undefined;
}

/** Returns alternating header names and values. */
export function failureHeaders({ status, error }: Failure): readonly string[] {
  if (typeof error === "object" && error.challenge !== undefined) return ["www-authenticate", error.challenge];
  return status === 503 ? ["retry-after", "5"] : [];
}

export const NO_CALL: CallHandle = { cancel: () => undefined };

/**
 * Processes large messages in slices. An exception is reported to `failed` if the message is large, and thrown to the
 * caller otherwise.
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

export function mapResult(call: Call, change: (message: ServerMessage) => ServerMessage): Call {
  return {
    request: call.request,
    headers: call.headers,
    caller: call.caller,
    watched: call.watched,
    guarded: call.guarded,
    wire: call.wire,
    routed: (target) => call.routed?.(target),
    notified: (message) => call.notified(message),
    asked: (question) => call.asked(question),
    answered: (message) => call.answered(message.kind === "result" ? change(message) : message),
    failed: (failure) => call.failed(failure),
  };
}

export function mapResultInSlices(call: Call, change: (message: ServerMessage) => Steps<ServerMessage>): Call {
  return {
    ...mapResult(call, (message) => message),
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
