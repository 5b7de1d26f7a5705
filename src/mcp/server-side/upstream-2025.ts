/**
 * Implements the upstream of a 2025 session. It stores the client's `initialize`, log level, and
 * subscriptions, and sends them again after a reconnect.
 */
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { find, slice } from "../../json/json-text.ts";
import type { Call, CallHandle, LoginRequired, Question } from "../protocol/call.ts";
import type { ClientNotification, ClientRequest, ServerMessage } from "../protocol/json-rpc.ts";
import { LATEST_2026 } from "../protocol/protocol-version.ts";
import { Client2025Bridge } from "./client-2025-bridge.ts";
import { type ConnectionOptions, type Handshake, ServerConnection } from "./server-connection.ts";
import type { Target } from "./target.ts";
import {
  type ConnectionLoss,
  handshakeRefusal,
  type OpenOutcome,
  readDiscovered,
  readInitialized,
  type ServerAbout,
  type Upstream,
  type UpstreamListener,
} from "./upstream.ts";

const MAX_SUBSCRIPTIONS = 1_000;
const MAX_SUBSCRIPTION_CHARS = 2_000;

export class Upstream2025 extends ServerConnection {
  readonly #user: UpstreamListener;
  readonly #initialize: ClientRequest;
  readonly #initializeParams: string;
  #bridge: Client2025Bridge | undefined = undefined;
  #opened: ((outcome: OpenOutcome) => void) | undefined = undefined;
  #isInitialized = false;
  #logLevel: string | undefined = undefined;
  #subscriptions: Set<string> | undefined = undefined;

  constructor(
    target: Target,
    env: ConnectionOptions,
    initialize: ClientRequest,
    user: UpstreamListener,
    headers: HeaderList | undefined,
  ) {
    super(target, env, headers);
    this.#user = user;
    this.#initialize = initialize;
    const params = find(initialize.text, 0, "params");
    this.#initializeParams = params ? slice(initialize.text, params) : "{}";
  }

  /** Joins a session that is already open and takes over the state of `before`. */
  join(before: Upstream | undefined): void {
    this.#isInitialized = true;
    if (!(before instanceof Upstream2025)) return;
    this.about = before.about;
    this.#logLevel = before.#logLevel;
    this.#subscriptions = before.#subscriptions;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    this.#opened = done;
    this.reconnect(wire);
  }

  override call(call: Call): CallHandle {
    if (this.#bridge) return this.#bridge.call(call);
    this.#remember(call.request);
    return super.call(call);
  }

  notify(message: ClientNotification, wire?: WireTap): void {
    if (message.method === "notifications/initialized") this.#isInitialized = true;
    if (this.#bridge) this.#bridge.notify(message);
    else this.sendNotification(message.text, message.method, wire);
  }

  protected handshake(io: Handshake): void {
    if (this.target.speaks2025 === false) {
      this.#discover(io, undefined);
      return;
    }
    io.request("initialize", this.#initializeParams, (answer, reason, error) => {
      const about = answer && readInitialized(answer);
      if (answer && about) {
        this.target.speaks2025 = true;
        io.setProtocol("2025", about.protocolVersion);
        this.#ready(io, answer, about);
      } else if (answer?.kind === "error" && this.target.speaks2025 === undefined) this.#discover(io, answer);
      else this.#refuse(io, answer, reason, error);
    });
  }

  protected notified(message: ServerMessage): void {
    this.#user.notified(this, message);
  }

  protected asked(question: Question): void {
    this.#user.asked(this, question);
  }

  protected canDeliverQuestions(): boolean {
    return this.#user.canDeliverQuestions();
  }

  protected lost(loss: ConnectionLoss): void {
    this.target.failures.add(loss.reason, loss.stderr);
    const opened = this.#opened;
    this.#opened = undefined;
    if (opened) opened({ ok: false, reason: loss.reason, error: loss.error });
    else this.#user.lost(this, loss);
  }

  /** A server that rejects `initialize` may support 2026-07-28. */
  #discover(io: Handshake, refusal: ServerMessage | undefined): void {
    this.#bridge ??= new Client2025Bridge(this.#initialize.params, {
      call: (call) => super.call(call),
      params: this.target.config.mcp ? this.target.params : undefined,
      notified: (message) => this.notified(message),
    });
    const bridge = this.#bridge;
    io.setProtocol("2026", LATEST_2026);
    io.request("server/discover", `{"_meta":{${bridge.envelope()}}}`, (answer, reason, error) => {
      const about = answer && readDiscovered(answer);
      if (!answer || !about) {
        this.#bridge = undefined;
        this.#refuse(io, refusal ?? answer, reason, error);
        return;
      }
      this.target.speaks2025 = false;
      this.target.speaks2026 = true;
      const translated = bridge.opened(answer, about);
      this.#ready(io, translated.answer, translated.about);
      if (this.#isInitialized) bridge.listen();
    });
  }

  #refuse(io: Handshake, answer: ServerMessage | undefined, reason: string, error?: LoginRequired): void {
    const opened = this.#opened;
    // Forwards only an error from the server, because a malformed result would look like success.
    if (opened && answer?.kind === "error") {
      this.#opened = undefined;
      opened({ ok: false, answer });
    }
    io.refuse(answer ? handshakeRefusal(answer) : reason, answer ? undefined : error);
  }

  #ready(io: Handshake, answer: ServerMessage, about: ServerAbout): void {
    const opened = this.#opened;
    this.#opened = undefined;
    if (opened) {
      this.about = about;
      // A session may open without this target, so the client may already be initialized.
      if (this.#isInitialized) this.#restore(io);
      else io.ready();
      opened({ ok: true, answer, about });
    } else this.#reopen(io, about);
  }

  /** Rejects a restarted server that answers with another protocol version. */
  #reopen(io: Handshake, about: ServerAbout): void {
    if (this.about !== undefined && about.protocolVersion !== this.about.protocolVersion) {
      io.refuse(`answers with protocol version ${about.protocolVersion} after a restart`);
      return;
    }
    this.about = about;
    this.#restore(io);
  }

  /** Without a bridge, sends the client's settings to the server before other calls. */
  #restore(io: Handshake): void {
    if (this.#bridge) {
      io.ready();
      return;
    }
    if (this.#isInitialized) io.notify("notifications/initialized", "{}");
    if (this.#logLevel !== undefined) io.request("logging/setLevel", this.#logLevel, () => undefined);
    if (this.#subscriptions)
      for (const params of this.#subscriptions) io.request("resources/subscribe", params, () => undefined);
    io.ready();
  }

  #remember(request: ClientRequest): void {
    const { method } = request;
    if (method !== "logging/setLevel" && method !== "resources/subscribe" && method !== "resources/unsubscribe") return;
    const span = find(request.text, 0, "params");
    const params = span ? slice(request.text, span) : "{}";
    if (method === "logging/setLevel") this.#logLevel = params;
    else if (method === "resources/subscribe") {
      this.#subscriptions ??= new Set();
      const subscription = JSON.stringify({ uri: request.params.uri });
      if (this.#subscriptions.size < MAX_SUBSCRIPTIONS && subscription.length <= MAX_SUBSCRIPTION_CHARS)
        this.#subscriptions.add(subscription);
    } else this.#subscriptions?.delete(JSON.stringify({ uri: request.params.uri }));
  }
}
