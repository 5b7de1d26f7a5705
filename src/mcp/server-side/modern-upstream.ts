/**
 * A target behind clients of the modern era. The server is asked what it is (`server/discover`); if it is modern,
 * requests pass as they are, otherwise it is initialized once for these clients and spoken to in its own era.
 */

import type { Clock } from "../../base/clock.ts";
import { HeaderList } from "../../http/headers.ts";
import { unknownMethod } from "../protocol/access.ts";
import { type Call, type CallHandle, NO_CALL, type Question, withAnswer } from "../protocol/call.ts";
import type { ClientNotification, ServerMessage } from "../protocol/json-rpc.ts";
import { LATEST_LEGACY, LATEST_MODERN, REMOVED_METHODS, SERVER_INFO } from "../protocol/protocol-version.ts";
import type { TurnRelay } from "../replicas/turn-relay.ts";
import { ModernClientBridge } from "./modern-client-bridge.ts";
import {
  type ConnectionListener,
  type ConnectionLoss,
  type ConnectionOptions,
  type Handshake,
  ServerConnection,
} from "./server-connection.ts";
import type { Target } from "./target.ts";
import {
  type OpenOutcome,
  readDiscovered,
  readInitialized,
  refusalOf,
  type ServerAbout,
  type Upstream,
  type UpstreamListener,
} from "./upstream.ts";

const NO_HEADERS = new HeaderList();

/** A legacy server may say nothing at all to a request that it does not know. */
const PROBE_MS = 5_000;
/** One that has spoken the modern era before is slow rather than another. */
const KNOWN_PROBE_MS = 30_000;

interface Probe {
  isDecided: boolean;
  isLegacyAsked: boolean;
}

export interface ModernUpstreamOptions {
  readonly link: ConnectionOptions;
  readonly clock: Clock;
  readonly relay: TurnRelay | undefined;
  token(): string;
}

/** What the client says of itself, as JSON text. */
export interface ClientIdentity {
  /** Members of `_meta`. */
  readonly envelope: string;
  readonly clientInfo: string;
  readonly capabilities: string;
}

export class ModernUpstream implements Upstream, ConnectionListener {
  readonly target: Target;
  about: ServerAbout | undefined = undefined;
  readonly #user: UpstreamListener;
  readonly #env: ModernUpstreamOptions;
  readonly #client: ClientIdentity;
  readonly #link: ServerConnection;
  #legacy: ModernClientBridge | undefined = undefined;
  #opened: ((outcome: OpenOutcome) => void) | undefined = undefined;
  #skipProbe = false;
  /** It was asked in both eras, and speaks the modern one. */
  #isToldTooMuch = false;

  constructor(
    target: Target,
    env: ModernUpstreamOptions,
    client: ClientIdentity,
    user: UpstreamListener,
    headers: HeaderList | undefined,
  ) {
    this.target = target;
    this.#env = env;
    this.#client = client;
    this.#user = user;
    this.#link = new ServerConnection(env.link, this, headers);
  }

  get pendingCalls(): number {
    return this.#link.pendingCalls + (this.#legacy?.parkedCalls ?? 0) + (this.#legacy?.hasListeners === true ? 1 : 0);
  }

  get isBackingOff(): boolean {
    return this.#link.isBackingOff;
  }

  get lossReason(): string | undefined {
    return this.#link.lossReason;
  }

  get ownsProcess(): boolean {
    return this.target.config.stdio !== undefined && this.#link.isConnected;
  }

  open(done: (outcome: OpenOutcome) => void): void {
    this.#opened = done;
    this.#link.connect();
  }

  call(call: Call): CallHandle {
    const { params } = this.target;
    const { method } = call.request;
    // Where the server is not reached over HTTP, we are its HTTP side and check what headers repeat.
    const problem =
      method === "tools/call" && this.target.config.mcp === undefined
        ? params.problem(call.request, call.headers ?? NO_HEADERS)
        : undefined;
    // Servers of this era answer in several ways to what it no longer has; the protocol names one.
    if (problem || REMOVED_METHODS.has(method)) {
      call.failed(problem ?? unknownMethod(method));
      return NO_CALL;
    }
    const learning =
      method === "tools/list"
        ? withAnswer(call, (message) => {
            params.learn(message);
            return message;
          })
        : call;
    return this.#legacy ? this.#legacy.call(learning) : this.#link.call(learning);
  }

  notify(_message: ClientNotification): void {
    // There is nothing that a modern client tells a server beyond its requests.
  }

  reconnect(): void {
    this.#link.connect();
  }

  sweep(nowMs: number): void {
    this.#link.sweep(nowMs);
    this.#legacy?.sweep(nowMs);
  }

  pause(): void {
    this.#link.pause();
  }

  resume(): void {
    this.#link.resume();
  }

  close(): Promise<void> {
    this.#legacy?.close();
    return this.#link.close();
  }

  detail(): Record<string, unknown> {
    return { ...this.#link.detail(), era: this.#legacy ? "legacy" : "modern" };
  }

  // What the link reports.

  handshake(io: Handshake): void {
    if (this.target.speaksModern === false || this.#skipProbe) this.#initialize(io);
    else this.#probe(io);
  }

  notified(message: ServerMessage): void {
    this.#legacy?.notified(message);
  }

  asked(question: Question): void {
    question.answer('"error":{"code":-32601,"message":"The client cannot be asked now"}');
  }

  canDeliverQuestions(): boolean {
    return false;
  }

  lost(loss: ConnectionLoss): void {
    if (this.#isToldTooMuch) {
      this.#isToldTooMuch = false;
      this.#link.connect();
      return;
    }
    // A legacy server may even end over a request that it does not know: it gets another chance without.
    const isRefused = loss.error === "overloaded" || typeof loss.error === "object";
    if (this.target.speaksModern === undefined && !this.#skipProbe && this.#opened && !isRefused) {
      this.#skipProbe = true;
      this.#link.connect();
      return;
    }
    this.target.failures.add(loss.reason, loss.stderr);
    this.#legacy?.endSubscriptions();
    const opened = this.#opened;
    this.#opened = undefined;
    if (opened) opened({ ok: false, reason: loss.reason, error: loss.error });
    else this.#user.lost(this, loss);
  }

  /**
   * A server that is silent for long may be one that knows no such request, or one that is slow to start: it is told both,
   * and what it answers first decides. One that was told too much is started once more, for the era that it speaks.
   */
  #probe(io: Handshake): void {
    const state: Probe = { isDecided: false, isLegacyAsked: false };
    const timer = this.#env.clock.after(this.target.speaksModern === true ? KNOWN_PROBE_MS : PROBE_MS, () => {
      if (!state.isDecided) this.#initialize(io, state);
    });
    io.setProtocol("modern", LATEST_MODERN);
    io.request("server/discover", `{"_meta":{${this.#client.envelope}}}`, (answer) => {
      if (state.isDecided) return;
      timer.cancel();
      const about = answer && readDiscovered(answer);
      if (!answer || !about) {
        if (!state.isLegacyAsked) this.#initialize(io, state);
        return;
      }
      state.isDecided = true;
      this.target.speaksModern = true;
      if (state.isLegacyAsked) {
        this.#isToldTooMuch = true;
        io.refuse("was slow to say which protocol it speaks");
        return;
      }
      this.about = { ...about, serverInfo: serverInfoOf(answer) ?? about.serverInfo };
      io.ready();
      this.#succeed(answer, this.about);
    });
  }

  #initialize(io: Handshake, probe: Probe = { isDecided: false, isLegacyAsked: false }): void {
    probe.isLegacyAsked = true;
    io.setProtocol("legacy", LATEST_LEGACY);
    const params = `{"protocolVersion":"${LATEST_LEGACY}","capabilities":${this.#client.capabilities},"clientInfo":${this.#client.clientInfo}}`;
    io.request("initialize", params, (answer, reason, error) => {
      if (probe.isDecided) return;
      probe.isDecided = true;
      const about = answer && readInitialized(answer);
      if (!answer || !about) {
        io.refuse(answer ? refusalOf(answer) : reason, answer ? undefined : error);
        return;
      }
      this.target.speaksModern = false;
      this.target.speaksLegacy = true;
      this.about = about;
      io.setProtocol("legacy", about.protocolVersion);
      io.notify("notifications/initialized", "{}");
      const known = this.#legacy;
      this.#legacy =
        known ??
        new ModernClientBridge(about, {
          call: (call) => this.#link.call(call),
          nowMs: () => this.#env.clock.monotonicMs(),
          token: this.#env.token,
          relay: this.#env.relay,
        });
      io.ready();
      known?.reopened(about);
      this.#succeed(answer, about);
    });
  }

  #succeed(answer: ServerMessage, about: ServerAbout): void {
    const opened = this.#opened;
    this.#opened = undefined;
    opened?.({ ok: true, answer, about });
  }
}

function serverInfoOf(answer: ServerMessage): unknown {
  const { result } = JSON.parse(answer.text) as { result?: { _meta?: Record<string, unknown> } };
  return result?._meta?.[SERVER_INFO];
}
