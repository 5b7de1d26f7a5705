/**
 * One target as one session sees it, in the words of the session's era. Behind it may stand a server of the
 * other era, or a process that other sessions use too: neither shows.
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

/** What a server says of itself in `initialize` or `server/discover`. */
export interface ServerAbout {
  readonly protocolVersion: string;
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly serverInfo: unknown;
  readonly instructions: string | undefined;
}

export type OpenOutcome =
  /** `answer` is the server's own, as it came. */
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
  /** Undefined until it was opened. */
  readonly about: ServerAbout | undefined;
  /** For admission to a session's time to live and the admin interface. */
  readonly pendingCalls: number;
  /** It failed a moment ago and is not tried again yet. */
  readonly isBackingOff: boolean;
  /** Why it was lost last; completes "target x …". */
  readonly lossReason: string | undefined;
  /** A process runs for it alone, and ends with it. */
  readonly ownsProcess?: boolean;
  /** `wire` is told of the handshake, where it is made for a client's request. */
  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void;
  call(call: Call): CallHandle;
  notify(message: ClientNotification, wire?: WireTap): void;
  /** Brings a lost connection up again without waiting for a call. */
  reconnect(): void;
  /** Lets its process go until it is needed again; undefined if there is none of its own, or it is at work. */
  park?(): Promise<void> | undefined;
  sweep(nowMs: number): void;
  pause(): void;
  resume(): void;
  close(): Promise<void>;
  detail(): Record<string, unknown>;
}

/** Whoever uses an upstream: what comes from the server without belonging to a call goes here. */
export interface UpstreamListener {
  notified(upstream: Upstream, message: ServerMessage): void;
  asked(upstream: Upstream, question: Question): void;
  canDeliverQuestions(): boolean;
  lost(upstream: Upstream, loss: ConnectionLoss): void;
}

/** What a server says of itself: larger than any, and parsed within some milliseconds. */
const MAX_ABOUT_TOKENS = 20_000;
/** HTTP carries it in a header. */
const VERSION = /^[\w.-]{1,64}$/;

/** From the result of `initialize`; undefined if it has not its form. */
export function readInitialized(answer: ServerMessage): ServerAbout | undefined {
  const about = readAbout(answer);
  return about && VERSION.test(about.protocolVersion) ? about : undefined;
}

/** From the result of `server/discover`; undefined if the server does not speak the modern era, whatever it answers. */
export function readDiscovered(answer: ServerMessage): ServerAbout | undefined {
  const about = readAbout(answer);
  const span = about && find(answer.text, 0, "result", "supportedVersions");
  const versions = span && (JSON.parse(slice(answer.text, span)) as unknown);
  return Array.isArray(versions) && versions.some((one) => typeof one === "string" && isModernVersion(one))
    ? about
    : undefined;
}

/** Why an answer to `initialize` does not open a session; completes "target x …". */
export function refusalOf(answer: ServerMessage): string {
  if (answer.kind === "result" && exceedsTokens(answer.text, MAX_ABOUT_TOKENS))
    return `answered initialize with more than ${MAX_ABOUT_TOKENS} values and names`;
  const unclear = answer.kind === "result" ? aboutKeyProblem(Object.keys(resultOf(answer))) : undefined;
  if (unclear !== undefined) return `answered initialize with a result that can be read in two ways: ${unclear}`;
  return answer.kind === "error" ? "refused to initialize" : "answered initialize without a protocol version";
}

function readAbout(answer: ServerMessage): ServerAbout | undefined {
  // It is parsed at once, here and by those who translate it.
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

const LOOK_EVERY_MS = 200;

export interface Drainable {
  readonly pendingCalls: number;
  /** Ends calls that take too long. */
  sweep(nowMs: number): void;
  close(): Promise<void>;
}

export class UpstreamDrain {
  readonly #clock: Clock;
  readonly #emptied: () => void;
  readonly #leaving = new Set<Drainable>();
  readonly #closing = new Set<Promise<void>>();
  #timer: Timer | undefined = undefined;

  /** `emptied` is called whenever the last one is closed. */
  constructor(clock: Clock, emptied: () => void) {
    this.#clock = clock;
    this.#emptied = emptied;
  }

  get isEmpty(): boolean {
    return this.#leaving.size === 0 && this.#closing.size === 0;
  }

  add(one: Drainable): void {
    this.#leaving.add(one);
    this.#timer ??= this.#clock.every(LOOK_EVERY_MS, this.#look);
    this.#look();
  }

  /** Waits for nothing any more. */
  async close(): Promise<void> {
    for (const one of this.#leaving) this.#close(one);
    await Promise.all(this.#closing);
  }

  readonly #look = (): void => {
    const nowMs = this.#clock.monotonicMs();
    for (const one of this.#leaving) {
      one.sweep(nowMs);
      if (one.pendingCalls === 0) this.#close(one);
    }
    if (this.#leaving.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  };

  #close(one: Drainable): void {
    this.#leaving.delete(one);
    const closing: Promise<void> = one.close().finally(() => {
      this.#closing.delete(closing);
      if (this.isEmpty) this.#emptied();
    });
    this.#closing.add(closing);
    if (this.#leaving.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}

export interface UpstreamHolder {
  readonly lastUsedMs: number;
  /** Nobody is connected and nothing runs. */
  readonly isIdle: boolean;
  readonly upstreams: readonly Upstream[];
  sweep(nowMs: number): void;
  /** `isForGood` false: its client may go on with it, here or in another process. Default: true. */
  end(reason: string, isForGood?: boolean): void;
  detail(): Record<string, unknown>;
}

/** Whether its end would end a process. */
export function ownsProcess({ upstreams }: UpstreamHolder): boolean {
  return upstreams.some((upstream) => upstream.ownsProcess === true);
}
