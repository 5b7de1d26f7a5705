/**
 * Implements one process or connection for all sessions of a target (`shared: true`). Requests of the server and its
 * log messages are not forwarded to clients.
 */

import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { WireTap } from "../../core/wire.ts";
import { find, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { editAt } from "../../json/syntax.ts";
import { unknownMethod } from "../protocol/access.ts";
import {
  answerCall,
  type Call,
  type CallHandle,
  failCall,
  ownCall,
  type Question,
  serverFailure,
} from "../protocol/call.ts";
import {
  asClientNotification,
  asClientRequest,
  asResult,
  type ClientNotification,
  edited,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { LATEST_2025 } from "../protocol/protocol-version.ts";
import type { RetryRelay } from "../replicas/retry-relay.ts";
import { Client2026Bridge } from "../server-side/client-2026-bridge.ts";
import type { ConnectionOptions } from "../server-side/server-connection.ts";
import type { Target } from "../server-side/target.ts";
import {
  type ConnectionLoss,
  type OpenOutcome,
  type ServerAbout,
  type Upstream,
  type UpstreamHolder,
  type UpstreamListener,
  UpstreamWrapper,
} from "../server-side/upstream.ts";
import { Upstream2025 } from "../server-side/upstream-2025.ts";
import { GATEWAY_INFO, lowestVersion, routable } from "./merge-responses.ts";

const PART = peerInput("mcp-server/part");

export interface SharedConnectionOptions {
  readonly link: ConnectionOptions;
  nowMs(): number;
  ended(server: SharedConnection, reason: string): void;
}

export class SharedConnection implements UpstreamListener, UpstreamHolder {
  readonly target: Target;
  lastUsedMs: number;
  readonly #env: SharedConnectionOptions;
  readonly #upstream: Upstream2025;
  readonly #upstreams = new Set<SharedUpstream>();
  #state: "new" | "opening" | "open" = "new";
  #outcome: OpenOutcome | undefined = undefined;
  #waiting: ((outcome: OpenOutcome) => void)[] = [];
  readonly #uris = new Map<string, number>();

  constructor(target: Target, env: SharedConnectionOptions) {
    this.target = target;
    this.#env = env;
    this.lastUsedMs = env.nowMs();
    const params = { protocolVersion: LATEST_2025, capabilities: {}, clientInfo: GATEWAY_INFO };
    this.#upstream = new Upstream2025(
      target,
      env.link,
      asClientRequest("initialize", JSON.stringify(params)),
      this,
      undefined,
    );
  }

  get about(): ServerAbout | undefined {
    return this.#upstream.about;
  }

  get upstreams(): readonly Upstream[] {
    return [this.#upstream];
  }

  get isIdle(): boolean {
    return this.#upstreams.size === 0 && this.#upstream.pendingCalls === 0;
  }

  get isBackingOff(): boolean {
    return this.#upstream.isBackingOff;
  }

  get lossReason(): string | undefined {
    return this.#upstream.lossReason;
  }

  addUpstream(user: UpstreamListener, version: string): SharedUpstream {
    const upstream = new SharedUpstream(this, user, version);
    this.#upstreams.add(upstream);
    return upstream;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    if (this.#state === "open" && this.#outcome) {
      done(this.#outcome);
      return;
    }
    this.#waiting.push(done);
    if (this.#state === "opening") return;
    this.#state = "opening";
    this.#upstream.open((outcome) => {
      this.#state = outcome.ok ? "open" : "new";
      this.#outcome = outcome;
      if (outcome.ok) this.#upstream.notify(INITIALIZED);
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const one of waiting) one(outcome);
    }, wire);
  }

  call(upstream: SharedUpstream, call: Call): CallHandle {
    this.lastUsedMs = this.#env.nowMs();
    const { method, params } = call.request;
    if (method === "resources/subscribe" || method === "resources/unsubscribe")
      return this.#subscription(upstream, call, String(params.uri), method === "resources/subscribe");
    // Rejects task requests, because one client could list and read the tasks of another over the shared connection.
    if (method.startsWith("tasks/")) return failCall(call, unknownMethod(method));
    // One client must not change the log level for the others.
    if (method === "logging/setLevel") return answerCall(call, asResult("{}"));
    return this.#upstream.call({
      request: call.request,
      headers: call.headers,
      wire: call.wire,
      notified: (message) => {
        if (message.method === "notifications/progress") call.notified(message);
      },
      asked: refuse,
      answered: (message) => call.answered(message),
      failed: (failure) => call.failed(failure),
    });
  }

  leave(upstream: SharedUpstream): void {
    if (!this.#upstreams.delete(upstream)) return;
    for (const uri of upstream.uris) this.#count(uri, -1);
    this.lastUsedMs = this.#env.nowMs();
  }

  reconnect(): void {
    this.#upstream.reconnect();
  }

  sweep(nowMs: number): void {
    this.#upstream.sweep(nowMs);
  }

  end(reason: string): void {
    this.#env.ended(this, reason);
  }

  detail(): Record<string, unknown> {
    return { seats: this.#upstreams.size, ...this.#upstream.detail() };
  }

  notified(_upstream: Upstream, message: ServerMessage): void {
    const isUpdate = message.method === "notifications/resources/updated";
    if (!isUpdate && message.method?.endsWith("/list_changed") !== true) return;
    const uri = isUpdate ? find(message.text, 0, "params", "uri") : undefined;
    const name = uri && String(readJson(PART, slice(message.text, uri)));
    for (const upstream of this.#upstreams)
      if (!isUpdate || (name !== undefined && upstream.uris.has(name))) upstream.deliver(message);
  }

  asked(_upstream: Upstream, question: Question): void {
    refuse(question);
  }

  canDeliverQuestions(): boolean {
    return true;
  }

  lost(_upstream: Upstream, loss: ConnectionLoss): void {
    for (const upstream of this.#upstreams) upstream.reportLoss(loss);
  }

  #subscription(upstream: SharedUpstream, call: Call, uri: string, isOn: boolean): CallHandle {
    if (upstream.uris.has(uri) !== isOn) {
      if (isOn) upstream.uris.add(uri);
      else upstream.uris.delete(uri);
      this.#count(uri, isOn ? 1 : -1);
    }
    return answerCall(call, asResult("{}"));
  }

  #count(uri: string, change: number): void {
    const before = this.#uris.get(uri) ?? 0;
    const after = before + change;
    if (after <= 0) this.#uris.delete(uri);
    else this.#uris.set(uri, after);
    if ((before === 0) === after <= 0) return;
    const request = asClientRequest(
      after > 0 ? "resources/subscribe" : "resources/unsubscribe",
      JSON.stringify({ uri }),
    );
    this.#upstream.call(ownCall(request, { asked: refuse }));
  }
}

const INITIALIZED = asClientNotification("notifications/initialized");

function refuse(question: Question): void {
  question.answer('"error":{"code":-32601,"message":"A shared server cannot ask a client"}');
}

export class SharedUpstream implements Upstream {
  readonly uris = new Set<string>();
  readonly #server: SharedConnection;
  readonly #user: UpstreamListener;
  readonly #version: string;

  constructor(server: SharedConnection, user: UpstreamListener, version: string) {
    this.#server = server;
    this.#user = user;
    this.#version = version;
  }

  get target(): Target {
    return this.#server.target;
  }

  get about(): ServerAbout | undefined {
    return this.#server.about;
  }

  get pendingCalls(): number {
    return 0;
  }

  get isBackingOff(): boolean {
    return this.#server.isBackingOff;
  }

  get lossReason(): string | undefined {
    return this.#server.lossReason;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    this.#server.open((outcome) => done(outcome.ok ? this.#negotiated(outcome.answer, outcome.about) : outcome), wire);
  }

  call(call: Call): CallHandle {
    return this.#server.call(this, call);
  }

  notify(_message: ClientNotification): void {
    // The gateway is the client of the server, so notifications from one session are not forwarded.
  }

  reconnect(): void {
    this.#server.reconnect();
  }

  sweep(): void {
    // The shared connection is swept separately.
  }

  pause(): void {
    // Other sessions use the connection, so it is not paused for one client.
  }

  resume(): void {
    // `pause` does nothing, so there is nothing to resume.
  }

  close(): Promise<void> {
    this.#server.leave(this);
    return Promise.resolve();
  }

  detail(): Record<string, unknown> {
    return { target: this.target.name, shared: true };
  }

  deliver(message: ServerMessage): void {
    this.#user.notified(this, message);
  }

  reportLoss(loss: ConnectionLoss): void {
    this.#user.lost(this, loss);
  }

  /**
   * The server was initialized with the latest 2025 version, so a client that requested an older version receives
   * that version.
   */
  #negotiated(answer: ServerMessage, about: ServerAbout): OpenOutcome {
    const protocolVersion = lowestVersion([about.protocolVersion, this.#version]);
    const capabilities = routable(about.capabilities);
    const version = find(answer.text, 0, "result", "protocolVersion");
    const abilities = find(answer.text, 0, "result", "capabilities");
    const changed = edited(answer, [
      ...(version ? [editAt(version, JSON.stringify(protocolVersion))] : []),
      ...(abilities ? [editAt(abilities, JSON.stringify(capabilities))] : []),
    ]);
    return { ok: true, answer: changed, about: { ...about, protocolVersion, capabilities } };
  }
}

export interface SharedUpstream2026Options {
  readonly clock: Clock;
  readonly relay: RetryRelay | undefined;
  token(): string;
}

export class SharedUpstream2026 extends UpstreamWrapper {
  readonly #env: SharedUpstream2026Options;
  #bridge: Client2026Bridge | undefined = undefined;

  constructor(server: SharedConnection, env: SharedUpstream2026Options, user: UpstreamListener) {
    super(user, (own) => server.addUpstream(own, LATEST_2025));
    this.#env = env;
  }

  override get pendingCalls(): number {
    return (this.#bridge?.suspendedCalls ?? 0) + (this.#bridge?.hasListeners === true ? 1 : 0);
  }

  open(done: (outcome: OpenOutcome) => void): void {
    this.inner.open((outcome) => {
      if (outcome.ok) {
        this.#bridge ??= new Client2026Bridge(outcome.about, {
          call: (call) => this.inner.call(call),
          nowMs: () => this.#env.clock.monotonicMs(),
          token: this.#env.token,
          relay: this.#env.relay,
        });
      }
      done(outcome);
    });
  }

  call(call: Call): CallHandle {
    if (this.#bridge) return this.#bridge.call(call);
    return failCall(call, serverFailure(`target "${this.target.name}" is not ready`, "overloaded"));
  }

  override sweep(nowMs: number): void {
    this.#bridge?.sweep(nowMs);
  }

  override close(): Promise<void> {
    this.#bridge?.close();
    return super.close();
  }

  override notified(_inner: Upstream, message: ServerMessage): void {
    this.#bridge?.notified(message);
  }

  override asked(_inner: Upstream, question: Question): void {
    this.#bridge?.asked(question);
  }

  override canDeliverQuestions(): boolean {
    return false;
  }

  override lost(): void {
    this.#bridge?.endSubscriptions();
  }
}
