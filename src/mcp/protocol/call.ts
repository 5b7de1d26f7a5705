/**
 * Models one MCP request inside the gateway. The receiver of the response implements `Call`, and the code that runs the
 * request returns a `CallHandle`. A `Question` is a request from a server to the client.
 */

import { surface } from "../../base/errors.ts";
import type { ServerMessages } from "../../base/memory-budget.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
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
  readonly access?: McpAccess | undefined;
  readonly guardrails?: McpGuardrails | undefined;
  /** True for a setting that another process already stored. */
  readonly isRepeated?: boolean;
  /** True if only the server may respond, not its stored definition. */
  readonly isLive?: boolean;
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

/** Passes everything to and from another call. Callers replace what they change. */
class ForwardedCall implements Call {
  request: ClientRequest;
  headers: HeaderList | undefined;
  /** The call as its client made it. */
  readonly client: Call;

  constructor(client: Call) {
    this.client = client;
    this.request = client.request;
    this.headers = client.headers;
  }

  get caller(): CelAttributes | undefined {
    return this.client.caller;
  }

  get watched(): ShadowReporter | undefined {
    return this.client.watched;
  }

  get guarded(): GuardReporter | undefined {
    return this.client.guarded;
  }

  get wire(): WireTap | undefined {
    return this.client.wire;
  }

  get access(): McpAccess | undefined {
    return this.client.access;
  }

  get guardrails(): McpGuardrails | undefined {
    return this.client.guardrails;
  }

  get isRepeated(): boolean {
    return this.client.isRepeated === true;
  }

  get isLive(): boolean {
    return this.client.isLive === true;
  }

  routed(target: RoutedTarget): void {
    this.client.routed?.(target);
  }

  notified(message: ServerMessage): void {
    this.client.notified(message);
  }

  asked(question: Question): void {
    this.client.asked(question);
  }

  answered(message: ServerMessage): void {
    this.client.answered(message);
  }

  failed(failure: Failure): void {
    this.client.failed(failure);
  }
}

export function forwardedCall(
  call: Call,
  changes: Partial<Pick<Call, "request" | "headers" | "notified" | "asked" | "answered" | "failed">>,
): Call {
  return Object.assign(new ForwardedCall(call), changes);
}

/** Makes a request of the gateway itself, which ignores everything that `receiver` does not handle. */
export function ownCall(request: ClientRequest, receiver: Partial<Call>): Call {
  return { request, notified: ignore, asked: refuseQuestion, answered: ignore, failed: ignore, ...receiver };
}

function ignore(): void {
  // Nobody waits for this message.
}

/** The handle of a call that starts later. */
export class LateCall implements CallHandle {
  current: CallHandle = NO_CALL;
  isCancelled = false;

  cancel(reason: string | undefined): void {
    this.isCancelled = true;
    this.current.cancel(reason);
  }
}

export function failCall(call: Call, failure: Failure): CallHandle {
  call.failed(failure);
  return NO_CALL;
}

export function answerCall(call: Call, message: ServerMessage): CallHandle {
  call.answered(message);
  return NO_CALL;
}

export interface CallTarget {
  readonly name: string;
  readonly messages: ServerMessages;
  readonly config: { readonly shared?: boolean | undefined };
}

type Checked = ServerMessage | Failure;

/** One step between a client and its servers. A step that does not concern the call returns undefined. */
export interface Interceptor {
  /** May change `request` and `headers` of the call, or reject it with a failure. */
  request?(call: InterceptedCall): Failure | undefined | Promise<Failure | undefined>;
  /** Changes the result, or replaces it with a failure. */
  result?(
    call: InterceptedCall,
    message: ServerMessage,
  ): Checked | Promise<Checked> | Steps<Checked | Promise<Checked>> | undefined;
}

/** Sends `call` after the interceptors have accepted the request. The result passes them in the reverse order. */
export function intercept(
  call: Call,
  interceptors: readonly Interceptor[],
  send: (call: Call) => CallHandle,
  targets: readonly CallTarget[] = [],
): CallHandle {
  const intercepted = new InterceptedCall(call, interceptors, send, targets);
  intercepted.start();
  return intercepted;
}

export class InterceptedCall extends ForwardedCall implements CallHandle {
  /** The targets that get the request. */
  readonly targets: readonly CallTarget[];
  /** Returns whether the client owns the task. Set for requests about tasks. */
  ownsTask: ((taskId: string) => boolean) | undefined = undefined;
  readonly #interceptors: readonly Interceptor[];
  readonly #send: (call: Call) => CallHandle;
  #running: CallHandle = NO_CALL;
  #isCancelled = false;

  constructor(
    client: Call,
    interceptors: readonly Interceptor[],
    send: (call: Call) => CallHandle,
    targets: readonly CallTarget[],
  ) {
    super(client);
    this.#interceptors = interceptors;
    this.#send = send;
    this.targets = targets;
  }

  start(from = 0): void {
    for (let i = from; i < this.#interceptors.length; i++) {
      const failure = this.#interceptors[i]?.request?.(this);
      if (failure instanceof Promise) {
        this.#whenDone(failure, (late) => (late ? this.failed(late) : this.start(i + 1)));
        return;
      }
      if (failure !== undefined) {
        this.failed(failure);
        return;
      }
    }
    this.#running = this.#send(this);
  }

  override answered(message: ServerMessage): void {
    this.#answer(message, this.#interceptors.length - 1);
  }

  cancel(reason: string | undefined): void {
    this.#isCancelled = true;
    this.#running.cancel(reason);
  }

  #answer(message: ServerMessage, from: number): void {
    for (let i = from; i >= 0 && message.kind === "result"; i--) {
      const change = this.#interceptors[i]?.result?.(this, message);
      if (change === undefined) continue;
      const done = (checked: Checked | Promise<Checked>): void => {
        if (checked instanceof Promise) this.#whenDone(checked, done);
        else if ("code" in checked) this.failed(checked);
        else this.#answer(checked, i - 1);
      };
      if (!("next" in change)) done(change);
      else
        runMessageSteps(
          message,
          () => change,
          done,
          (failure) => this.failed(failure),
        );
      return;
    }
    this.client.answered(message);
  }

  #whenDone<T>(promise: Promise<T>, next: (value: T) => void): void {
    promise
      .then((value) => {
        if (!this.#isCancelled) next(value);
      })
      .catch((error: unknown) => {
        surface(error);
        if (!this.#isCancelled) this.failed(serverFailure("the call could not be processed"));
      });
  }
}
