/**
 * The upstream contract: one target as one session sees it, in the session's protocol version. It hides whether the
 * server has another protocol version or is shared with other sessions. Also: draining of replaced upstreams.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import { find, slice } from "../../json/json-text.ts";
import { exceedsTokens } from "../../json/parse-cost.ts";
import type { Call, CallHandle, LoginRequired, Question, ServerError } from "../protocol/call.ts";
import type { ClientNotification, ServerMessage } from "../protocol/json-rpc.ts";
import { aboutKeyProblem } from "../protocol/message-rules.ts";
import { isModernVersion } from "../protocol/protocol-version.ts";
import type { ConnectionLoss } from "./server-connection.ts";
import type { Target } from "./target.ts";

/** The server's response to `initialize` or `server/discover`. */
export interface ServerAbout {
  readonly protocolVersion: string;
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly serverInfo: unknown;
  readonly instructions: string | undefined;
}

export type OpenOutcome =
  /** `answer` is the unmodified response of the server. */
  | { readonly ok: true; readonly answer: ServerMessage; readonly about: ServerAbout }
  | { readonly ok: false; readonly answer: ServerMessage }
  | {
      readonly ok: false;
      readonly answer?: undefined;
      readonly reason: string;
      readonly error: ServerError | LoginRequired;
    };

export interface Upstream {
  readonly target: Target;
  /** Undefined until the upstream is open. */
  readonly about: ServerAbout | undefined;
  readonly pendingCalls: number;
  /** Whether the connection failed recently and the next attempt is delayed. */
  readonly isBackingOff: boolean;
  /** Why the connection was lost last; completes "target x …". */
  readonly lossReason: string | undefined;
  /** Whether a child process runs for this upstream alone. */
  readonly ownsProcess?: boolean;
  /** `wire` traces the handshake if a client's request caused it. */
  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void;
  call(call: Call): CallHandle;
  notify(message: ClientNotification, wire?: WireTap): void;
  /** Reconnects a lost connection without waiting for a call. */
  reconnect(): void;
  /** Stops its own idle process until the next call. Returns undefined if there is none or it is in use. */
  park?(): Promise<void> | undefined;
  sweep(nowMs: number): void;
  pause(): void;
  resume(): void;
  close(): Promise<void>;
  detail(): Record<string, unknown>;
}

/** Receives messages and events of an upstream that belong to no call. */
export interface UpstreamListener {
  notified(upstream: Upstream, message: ServerMessage): void;
  asked(upstream: Upstream, question: Question): void;
  canDeliverQuestions(): boolean;
  lost(upstream: Upstream, loss: ConnectionLoss): void;
}

/** Larger than any known server description, and parsed within milliseconds. */
const MAX_ABOUT_TOKENS = 20_000;
/** HTTP repeats the version in a header, so its characters are restricted. */
const VERSION = /^[\w.-]{1,64}$/;

/** Parses the result of `initialize`; undefined if it is malformed. */
export function readInitialized(answer: ServerMessage): ServerAbout | undefined {
  const about = readAbout(answer);
  return about && VERSION.test(about.protocolVersion) ? about : undefined;
}

/** Parses the result of `server/discover`; undefined if the server does not support 2026-07-28. */
export function readDiscovered(answer: ServerMessage): ServerAbout | undefined {
  const about = readAbout(answer);
  const span = about && find(answer.text, 0, "result", "supportedVersions");
  const versions = span && (JSON.parse(slice(answer.text, span)) as unknown);
  return Array.isArray(versions) && versions.some((one) => typeof one === "string" && isModernVersion(one))
    ? about
    : undefined;
}

/** Why a response to `initialize` opens no session; completes "target x …". */
export function refusalOf(answer: ServerMessage): string {
  if (answer.kind === "result" && exceedsTokens(answer.text, MAX_ABOUT_TOKENS))
    return `answered initialize with more than ${MAX_ABOUT_TOKENS} values and names`;
  const unclear = answer.kind === "result" ? aboutKeyProblem(Object.keys(resultOf(answer))) : undefined;
  if (unclear !== undefined) return `answered initialize with a result that can be read in two ways: ${unclear}`;
  return answer.kind === "error" ? "refused to initialize" : "answered initialize without a protocol version";
}

function readAbout(answer: ServerMessage): ServerAbout | undefined {
  // The response is parsed without slicing, so its size is limited.
  if (answer.kind !== "result" || exceedsTokens(answer.text, MAX_ABOUT_TOKENS)) return undefined;
  const result = resultOf(answer);
  if (aboutKeyProblem(Object.keys(result)) !== undefined) return undefined;
  const { protocolVersion, capabilities, serverInfo, instructions } = result;
  return {
    protocolVersion: typeof protocolVersion === "string" ? protocolVersion : "",
    capabilities:
      typeof capabilities === "object" && capabilities !== null ? (capabilities as Record<string, unknown>) : {},
    serverInfo,
    instructions: typeof instructions === "string" ? instructions : undefined,
  };
}

function resultOf(answer: ServerMessage): Record<string, unknown> {
  return (JSON.parse(answer.text) as { result: Record<string, unknown> }).result;
}

const CHECK_INTERVAL_MS = 200;

export interface Drainable {
  readonly pendingCalls: number;
  /** Times out overdue calls. */
  sweep(nowMs: number): void;
  close(): Promise<void>;
}

/** Closes upstreams that a new configuration replaced, once their pending calls have ended. */
export class UpstreamDrain {
  readonly #clock: Clock;
  readonly #emptied: () => void;
  readonly #draining = new Set<Drainable>();
  readonly #closing = new Set<Promise<void>>();
  #timer: Timer | undefined = undefined;

  /** Calls `emptied` each time the last upstream is closed. */
  constructor(clock: Clock, emptied: () => void) {
    this.#clock = clock;
    this.#emptied = emptied;
  }

  get isEmpty(): boolean {
    return this.#draining.size === 0 && this.#closing.size === 0;
  }

  add(upstream: Drainable): void {
    this.#draining.add(upstream);
    this.#timer ??= this.#clock.every(CHECK_INTERVAL_MS, this.#check);
    this.#check();
  }

  /** Closes all upstreams without waiting for their calls. */
  async close(): Promise<void> {
    for (const upstream of this.#draining) this.#close(upstream);
    await Promise.all(this.#closing);
  }

  readonly #check = (): void => {
    const nowMs = this.#clock.monotonicMs();
    for (const upstream of this.#draining) {
      upstream.sweep(nowMs);
      if (upstream.pendingCalls === 0) this.#close(upstream);
    }
    if (this.#draining.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  };

  #close(upstream: Drainable): void {
    this.#draining.delete(upstream);
    const closing: Promise<void> = upstream.close().finally(() => {
      this.#closing.delete(closing);
      if (this.isEmpty) this.#emptied();
    });
    this.#closing.add(closing);
    if (this.#draining.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}

/**
 * Owns upstreams: a legacy session, a group of modern clients, or a shared connection. The session store evicts idle
 * ones.
 */
export interface UpstreamHolder {
  readonly lastUsedMs: number;
  /** No client is connected and no call is pending. */
  readonly isIdle: boolean;
  readonly upstreams: readonly Upstream[];
  sweep(nowMs: number): void;
  /** With `isForGood: false`, the client may resume it in this or another process. Default: true. */
  end(reason: string, isForGood?: boolean): void;
  detail(): Record<string, unknown>;
}

/** Whether ending it would end a child process. */
export function ownsProcess({ upstreams }: UpstreamHolder): boolean {
  return upstreams.some((upstream) => upstream.ownsProcess === true);
}
