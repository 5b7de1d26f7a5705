/**
 * Implements the upstream of modern clients (2026-07-28), which probes the server with `server/discover`. A legacy
 * server is called through `ModernClientBridge`.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { HeaderList } from "../../http/headers.ts";
import { readJson } from "../../json/read-json.ts";
import { unknownMethod } from "../protocol/access.ts";
import { type Call, type CallHandle, failCall, intercept, type Question, refuseQuestion } from "../protocol/call.ts";
import type { ClientNotification, ServerMessage } from "../protocol/json-rpc.ts";
import { LATEST_LEGACY, LATEST_MODERN, REMOVED_METHODS, SERVER_INFO } from "../protocol/protocol-version.ts";
import type { RetryRelay } from "../replicas/retry-relay.ts";
import { ModernClientBridge } from "./modern-client-bridge.ts";
import { type ConnectionLoss, type ConnectionOptions, type Handshake, ServerConnection } from "./server-connection.ts";
import type { Target } from "./target.ts";
import {
  handshakeRefusal,
  type OpenOutcome,
  readDiscovered,
  readInitialized,
  type ServerAbout,
  type UpstreamListener,
} from "./upstream.ts";

const PART = peerInput("mcp-server/part");

const NO_HEADERS = new HeaderList();

/** After this time without a response to `server/discover`, the gateway may send a ping. */
const PROBE_MS = 5_000;
const GRACE_MS = 1_000;
/** The minimum time before `initialize` is sent to a server that does not respond. */
const SILENT_MS = 30_000;

interface Probe {
  isDecided: boolean;
  isLegacyTried: boolean;
}

export interface ModernUpstreamOptions {
  readonly link: ConnectionOptions;
  readonly clock: Clock;
  readonly relay: RetryRelay | undefined;
  token(): string;
  startWaitMs(): number;
}

/** `envelope` contains `"key":value` pairs joined by commas. The other fields contain JSON values. */
export interface ClientIdentity {
  readonly envelope: string;
  readonly clientInfo: string;
  readonly capabilities: string;
}

export class ModernUpstream extends ServerConnection {
  readonly #user: UpstreamListener;
  readonly #env: ModernUpstreamOptions;
  readonly #client: ClientIdentity;
  #legacy: ModernClientBridge | undefined = undefined;
  #opened: ((outcome: OpenOutcome) => void) | undefined = undefined;
  #skipProbe = false;
  /** Requests a restart, because the server received both handshakes and supports 2026-07-28. */
  #needsCleanStart = false;

  constructor(
    target: Target,
    env: ModernUpstreamOptions,
    client: ClientIdentity,
    user: UpstreamListener,
    headers: HeaderList | undefined,
  ) {
    super(target, env.link, headers);
    this.#env = env;
    this.#client = client;
    this.#user = user;
  }

  override get pendingCalls(): number {
    return super.pendingCalls + (this.#legacy?.suspendedCalls ?? 0) + (this.#legacy?.hasListeners === true ? 1 : 0);
  }

  open(done: (outcome: OpenOutcome) => void): void {
    this.#opened = done;
    this.reconnect();
  }

  override call(call: Call): CallHandle {
    const { params } = this.target;
    const { method } = call.request;
    // Only streamable HTTP servers check the mirrored headers themselves.
    const problem =
      method === "tools/call" && this.target.config.mcp === undefined
        ? params.problem(call.request, call.headers ?? NO_HEADERS)
        : undefined;
    // Servers respond to removed methods in different ways, so the gateway returns the specified error.
    if (problem || REMOVED_METHODS.has(method)) return failCall(call, problem ?? unknownMethod(method));
    const send = (own: Call): CallHandle => this.#legacy?.call(own) ?? super.call(own);
    return method === "tools/list" ? intercept(call, [params.learning], send) : send(call);
  }

  notify(_message: ClientNotification): void {
    // There is no client notification to forward.
  }

  override sweep(nowMs: number): void {
    super.sweep(nowMs);
    this.#legacy?.sweep(nowMs);
  }

  override close(): Promise<void> {
    this.#legacy?.close();
    return super.close();
  }

  override detail(): Record<string, unknown> {
    return { ...super.detail(), era: this.#legacy ? "legacy" : "modern" };
  }

  protected handshake(io: Handshake): void {
    const { speaksModern } = this.target;
    if (speaksModern === false || (speaksModern === undefined && this.#skipProbe)) this.#initialize(io);
    else this.#probe(io);
  }

  protected notified(message: ServerMessage): void {
    this.#legacy?.notified(message);
  }

  protected asked(question: Question): void {
    refuseQuestion(question);
  }

  protected canDeliverQuestions(): boolean {
    return false;
  }

  protected lost(loss: ConnectionLoss): void {
    if (this.#needsCleanStart) {
      this.#needsCleanStart = false;
      this.reconnect();
      return;
    }
    const isRefused = loss.error === "overloaded" || typeof loss.error === "object";
    if (this.target.speaksModern === undefined && !isRefused) {
      // A legacy server may exit on an unknown request, and any server may be unavailable, so attempts alternate.
      this.#skipProbe = !this.#skipProbe;
      if (this.#skipProbe && this.#opened) {
        this.reconnect();
        return;
      }
    }
    this.target.failures.add(loss.reason, loss.stderr);
    this.#legacy?.endSubscriptions();
    const opened = this.#opened;
    this.#opened = undefined;
    if (opened) opened({ ok: false, reason: loss.reason, error: loss.error });
    else this.#user.lost(this, loss);
  }

  /**
   * A server that does not respond may not support the request or may still be starting. A response to a ping shows
   * that it has started.
   */
  #probe(io: Handshake): void {
    const state: Probe = { isDecided: false, isLegacyTried: false };
    const { clock } = this.#env;
    // The ping also has the envelope, because a server of both versions may treat a client without it as legacy.
    const params = `{"_meta":{${this.#client.envelope}}}`;
    const tryLegacy = (): void => {
      stopTimers();
      if (!state.isDecided && !state.isLegacyTried) this.#initialize(io, state);
    };
    // Servers may process both requests at the same time, so the response to the ping may come first.
    const afterPing = (): void => {
      if (!state.isDecided) graceTimer = clock.after(GRACE_MS, tryLegacy);
    };
    const pingTimer = clock.after(PROBE_MS, () => {
      // A server that supported 2026-07-28 in an earlier handshake is probably slow, so it needs no ping.
      if (this.target.speaksModern === undefined) io.request("ping", params, afterPing);
    });
    const silentTimer = clock.after(Math.max(SILENT_MS, this.#env.startWaitMs()), tryLegacy);
    const stopTimers = (): void => {
      pingTimer.cancel();
      silentTimer.cancel();
      graceTimer?.cancel();
    };
    let graceTimer: Timer | undefined;
    io.setProtocol("modern", LATEST_MODERN);
    io.request("server/discover", params, (answer) => {
      stopTimers();
      if (state.isDecided) return;
      const about = answer && readDiscovered(answer);
      if (!answer || !about) {
        if (!state.isLegacyTried) this.#initialize(io, state);
        return;
      }
      state.isDecided = true;
      this.target.speaksModern = true;
      if (state.isLegacyTried) {
        this.#needsCleanStart = true;
        io.refuse("answered server/discover only after initialize was sent, so the gateway restarts it");
        return;
      }
      this.about = { ...about, serverInfo: readServerInfo(answer) ?? about.serverInfo };
      io.ready();
      this.#succeed(answer, this.about);
    });
  }

  #initialize(io: Handshake, probe: Probe = { isDecided: false, isLegacyTried: false }): void {
    probe.isLegacyTried = true;
    io.setProtocol("legacy", LATEST_LEGACY);
    const params = `{"protocolVersion":"${LATEST_LEGACY}","capabilities":${this.#client.capabilities},"clientInfo":${this.#client.clientInfo}}`;
    io.request("initialize", params, (answer, reason, error) => {
      if (probe.isDecided) return;
      probe.isDecided = true;
      const about = answer && readInitialized(answer);
      if (!answer || !about) {
        io.refuse(answer ? handshakeRefusal(answer) : reason, answer ? undefined : error);
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
          call: (call) => super.call(call),
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

function readServerInfo(answer: ServerMessage): unknown {
  const { result } = readJson(PART, answer.text) as { result?: { _meta?: Record<string, unknown> } };
  return result?._meta?.[SERVER_INFO];
}
