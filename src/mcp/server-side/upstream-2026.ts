/**
 * Implements the upstream of 2026-07-28 clients, which probes the server with `server/discover`. A 2025
 * server is called through `Client2026Bridge`.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { HeaderList } from "../../http/headers.ts";
import { readJson } from "../../json/read-json.ts";
import { unknownMethod } from "../protocol/access.ts";
import { type Call, type CallHandle, failCall, intercept, type Question, refuseQuestion } from "../protocol/call.ts";
import type { ClientNotification, ServerMessage } from "../protocol/json-rpc.ts";
import { LATEST_2025, LATEST_2026, REMOVED_METHODS, SERVER_INFO } from "../protocol/protocol-version.ts";
import type { RetryRelay } from "../replicas/retry-relay.ts";
import { Client2026Bridge } from "./client-2026-bridge.ts";
import { type ConnectionOptions, type Handshake, ServerConnection } from "./server-connection.ts";
import type { Target } from "./target.ts";
import {
  type ConnectionLoss,
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
  is2025Tried: boolean;
}

export interface Upstream2026Options {
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

export class Upstream2026 extends ServerConnection {
  readonly #user: UpstreamListener;
  readonly #env: Upstream2026Options;
  readonly #client: ClientIdentity;
  #bridge: Client2026Bridge | undefined = undefined;
  #opened: ((outcome: OpenOutcome) => void) | undefined = undefined;
  #skipProbe = false;
  /** Requests a restart, because the server received both handshakes and supports 2026-07-28. */
  #needsCleanStart = false;

  constructor(
    target: Target,
    env: Upstream2026Options,
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
    return super.pendingCalls + (this.#bridge?.suspendedCalls ?? 0) + (this.#bridge?.hasListeners === true ? 1 : 0);
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
    const send = (own: Call): CallHandle => this.#bridge?.call(own) ?? super.call(own);
    return method === "tools/list" ? intercept(call, [params.learning], send) : send(call);
  }

  notify(_message: ClientNotification): void {
    // There is no client notification to forward.
  }

  override sweep(nowMs: number): void {
    super.sweep(nowMs);
    this.#bridge?.sweep(nowMs);
  }

  override close(): Promise<void> {
    this.#bridge?.close();
    return super.close();
  }

  override detail(): Record<string, unknown> {
    return { ...super.detail(), protocol: this.#bridge ? "2025" : "2026" };
  }

  protected handshake(io: Handshake): void {
    const { speaks2026 } = this.target;
    if (speaks2026 === false || (speaks2026 === undefined && this.#skipProbe)) this.#initialize(io);
    else this.#probe(io);
  }

  protected notified(message: ServerMessage): void {
    this.#bridge?.notified(message);
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
    if (this.target.speaks2026 === undefined && !isRefused) {
      // A 2025 server may exit on an unknown request, and any server may be unavailable, so attempts alternate.
      this.#skipProbe = !this.#skipProbe;
      if (this.#skipProbe && this.#opened) {
        this.reconnect();
        return;
      }
    }
    this.target.failures.add(loss.reason, loss.stderr);
    this.#bridge?.endSubscriptions();
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
    const state: Probe = { isDecided: false, is2025Tried: false };
    const { clock } = this.#env;
    // The ping also has the envelope, because a server of both versions may treat a client without it as one of 2025.
    const params = `{"_meta":{${this.#client.envelope}}}`;
    const try2025 = (): void => {
      stopTimers();
      if (!state.isDecided && !state.is2025Tried) this.#initialize(io, state);
    };
    // Servers may process both requests at the same time, so the response to the ping may come first.
    const afterPing = (): void => {
      if (!state.isDecided) graceTimer = clock.after(GRACE_MS, try2025);
    };
    const pingTimer = clock.after(PROBE_MS, () => {
      // A server that supported 2026-07-28 in an earlier handshake is probably slow, so it needs no ping.
      if (this.target.speaks2026 === undefined) io.request("ping", params, afterPing);
    });
    const silentTimer = clock.after(Math.max(SILENT_MS, this.#env.startWaitMs()), try2025);
    const stopTimers = (): void => {
      pingTimer.cancel();
      silentTimer.cancel();
      graceTimer?.cancel();
    };
    let graceTimer: Timer | undefined;
    io.setProtocol("2026", LATEST_2026);
    io.request("server/discover", params, (answer) => {
      stopTimers();
      if (state.isDecided) return;
      const about = answer && readDiscovered(answer);
      if (!answer || !about) {
        if (!state.is2025Tried) this.#initialize(io, state);
        return;
      }
      state.isDecided = true;
      this.target.speaks2026 = true;
      if (state.is2025Tried) {
        this.#needsCleanStart = true;
        io.refuse("answered server/discover only after initialize was sent, so the gateway restarts it");
        return;
      }
      this.about = { ...about, serverInfo: readServerInfo(answer) ?? about.serverInfo };
      io.ready();
      this.#succeed(answer, this.about);
    });
  }

  #initialize(io: Handshake, probe: Probe = { isDecided: false, is2025Tried: false }): void {
    probe.is2025Tried = true;
    io.setProtocol("2025", LATEST_2025);
    const params = `{"protocolVersion":"${LATEST_2025}","capabilities":${this.#client.capabilities},"clientInfo":${this.#client.clientInfo}}`;
    io.request("initialize", params, (answer, reason, error) => {
      if (probe.isDecided) return;
      probe.isDecided = true;
      const about = answer && readInitialized(answer);
      if (!answer || !about) {
        io.refuse(answer ? handshakeRefusal(answer) : reason, answer ? undefined : error);
        return;
      }
      this.target.speaks2026 = false;
      this.target.speaks2025 = true;
      this.about = about;
      io.setProtocol("2025", about.protocolVersion);
      io.notify("notifications/initialized", "{}");
      const known = this.#bridge;
      this.#bridge =
        known ??
        new Client2026Bridge(about, {
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
