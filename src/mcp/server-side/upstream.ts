/**
 * Defines the upstream contract, which presents one target to its clients in their protocol version.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { WireTap } from "../../core/wire.ts";
import { find, slice } from "../../json/json-text.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";
import type { Call, CallHandle, LoginRequired, Question, ServerError } from "../protocol/call.ts";
import type { ClientNotification, ServerMessage } from "../protocol/json-rpc.ts";
import { aboutKeyProblem } from "../protocol/message-rules.ts";
import { is2026Version } from "../protocol/protocol-version.ts";
import type { Target } from "./target.ts";

const ABOUT = peerInput("mcp-server/about");
const PART = peerInput("mcp-server/part");

export interface ServerAbout {
  readonly protocolVersion: string;
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly serverInfo: unknown;
  readonly instructions: string | undefined;
}

export type OpenOutcome =
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
  readonly about: ServerAbout | undefined;
  readonly pendingCalls: number;
  readonly isBackingOff: boolean;
  /** The reason completes the sentence "target x …". */
  readonly lossReason: string | undefined;
  /** True if a child process serves only this upstream. */
  readonly ownsProcess?: boolean;
  /** `wire` traces the handshake if a client's request caused it. */
  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void;
  call(call: Call): CallHandle;
  notify(message: ClientNotification, wire?: WireTap): void;
  reconnect(): void;
  /**
   * Stops an idle process until the next call. Returns undefined if the upstream owns no process or the process is in
   * use.
   */
  park?(): Promise<void> | undefined;
  sweep(nowMs: number): void;
  pause(): void;
  resume(): void;
  close(): Promise<void>;
  detail(): Record<string, unknown>;
}

export interface ConnectionLoss {
  /** The reason completes the sentence "target x …". */
  readonly reason: string;
  readonly error: ServerError | LoginRequired;
  readonly failedStarts: number;
  readonly stderr: readonly string[];
}

export interface UpstreamListener {
  notified(upstream: Upstream, message: ServerMessage): void;
  asked(upstream: Upstream, question: Question): void;
  canDeliverQuestions(): boolean;
  lost(upstream: Upstream, loss: ConnectionLoss): void;
}

/** Passes everything to and from another upstream. Subclasses replace what they change. */
export abstract class UpstreamWrapper implements Upstream, UpstreamListener {
  readonly inner: Upstream;
  protected readonly user: UpstreamListener;

  constructor(user: UpstreamListener, make: (user: UpstreamListener) => Upstream) {
    this.user = user;
    this.inner = make(this);
  }

  get target(): Target {
    return this.inner.target;
  }

  get about(): ServerAbout | undefined {
    return this.inner.about;
  }

  get pendingCalls(): number {
    return this.inner.pendingCalls;
  }

  get isBackingOff(): boolean {
    return this.inner.isBackingOff;
  }

  get lossReason(): string | undefined {
    return this.inner.lossReason;
  }

  get ownsProcess(): boolean {
    return this.inner.ownsProcess === true;
  }

  abstract open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void;

  abstract call(call: Call): CallHandle;

  notify(message: ClientNotification, wire?: WireTap): void {
    this.inner.notify(message, wire);
  }

  reconnect(): void {
    this.inner.reconnect();
  }

  park(): Promise<void> | undefined {
    return this.inner.park?.();
  }

  sweep(nowMs: number): void {
    this.inner.sweep(nowMs);
  }

  pause(): void {
    this.inner.pause();
  }

  resume(): void {
    this.inner.resume();
  }

  close(): Promise<void> {
    return this.inner.close();
  }

  detail(): Record<string, unknown> {
    return this.inner.detail();
  }

  notified(_inner: Upstream, message: ServerMessage): void {
    this.user.notified(this, message);
  }

  asked(_inner: Upstream, question: Question): void {
    this.user.asked(this, question);
  }

  canDeliverQuestions(): boolean {
    return this.user.canDeliverQuestions();
  }

  lost(_inner: Upstream, loss: ConnectionLoss): void {
    this.user.lost(this, loss);
  }
}

/** Restricts the characters, because the version is sent in an HTTP header. */
const VERSION = /^[\w.-]{1,64}$/;

export function readInitialized(answer: ServerMessage): ServerAbout | undefined {
  const about = readAbout(answer);
  return about && VERSION.test(about.protocolVersion) ? about : undefined;
}

/** Returns undefined if the result is invalid or lists no 2026-07-28 version. */
export function readDiscovered(answer: ServerMessage): ServerAbout | undefined {
  const about = readAbout(answer);
  const span = about && find(answer.text, 0, "result", "supportedVersions");
  const versions = span && readJson(PART, slice(answer.text, span));
  return Array.isArray(versions) && versions.some((one) => typeof one === "string" && is2026Version(one))
    ? about
    : undefined;
}

/** The result completes the sentence "target x …". */
export function handshakeRefusal(answer: ServerMessage): string {
  if (answer.kind === "error") return "refused to initialize";
  const result = answer.kind === "result" ? parseResult(answer) : {};
  if (result === undefined) return `answered initialize with more than 1 MiB or ${ABOUT.maxItems} values and names`;
  const unclear = aboutKeyProblem(Object.keys(result));
  return unclear === undefined
    ? "answered initialize without a protocol version"
    : `answered initialize with a result that can be read in two ways: ${unclear}`;
}

function readAbout(answer: ServerMessage): ServerAbout | undefined {
  const result = answer.kind === "result" ? parseResult(answer) : undefined;
  if (result === undefined || aboutKeyProblem(Object.keys(result)) !== undefined) return undefined;
  const { protocolVersion, capabilities, serverInfo, instructions } = result;
  return {
    protocolVersion: typeof protocolVersion === "string" ? protocolVersion : "",
    capabilities:
      typeof capabilities === "object" && capabilities !== null ? (capabilities as Record<string, unknown>) : {},
    serverInfo,
    instructions: typeof instructions === "string" ? instructions : undefined,
  };
}

/** Returns undefined if the result is too large or has too many values. */
function parseResult({ text }: ServerMessage): Record<string, unknown> | undefined {
  return (tryReadJson(ABOUT, text) as { result: Record<string, unknown> } | undefined)?.result;
}

const CHECK_INTERVAL_MS = 200;

export interface Drainable {
  readonly pendingCalls: number;
  sweep(nowMs: number): void;
  close(): Promise<void>;
}

/** Closes upstreams when their pending calls have ended. */
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

export interface UpstreamHolder {
  readonly lastUsedMs: number;
  readonly isIdle: boolean;
  readonly upstreams: readonly Upstream[];
  sweep(nowMs: number): void;
  /** If `isForGood` is false, the client may resume in this or another process. The default is true. */
  end(reason: string, isForGood?: boolean): void;
  detail(): Record<string, unknown>;
}

export function ownsProcess({ upstreams }: UpstreamHolder): boolean {
  return upstreams.some((upstream) => upstream.ownsProcess === true);
}
