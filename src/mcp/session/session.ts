/**
 * Represents one session of a 2025 client: its servers, and when it opens, parks, and ends. Its calls, event streams,
 * open questions, and messages from other replicas have classes of their own.
 * Several replicas can have the same session.
 */
import type { MemoryAccount } from "../../base/memory-budget.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import { shownPrincipal } from "../../core/principal.ts";
import type { WireTap } from "../../core/wire.ts";
import type { Names } from "../aggregation/names.ts";
import { openGuarded, type Router, type RouterOutcome, type TargetChange } from "../aggregation/router.ts";
import { type Failure, ownCall, type Question } from "../protocol/call.ts";
import {
  asClientNotification,
  asServerMessage,
  type ClientNotification,
  type ClientRequest,
  type ClientResponse,
  notificationText,
  type ServerMessage,
  withId,
} from "../protocol/json-rpc.ts";
import { allowsPrimingEvents } from "../protocol/protocol-version.ts";
import { type PeerSession, SessionPeers } from "../replicas/session-peers.ts";
import type { ConnectionLoss, Upstream, UpstreamHolder, UpstreamListener } from "../server-side/upstream.ts";
import { ClientQuestions } from "./client-questions.ts";
import type { EventPlace } from "./event-stream.ts";
import { type EventStream, type Heartbeats, KEEP_ALIVE_MS } from "./event-stream.ts";
import {
  CANCELLED,
  type CallReport,
  type CallSession,
  failureOutcome,
  SessionCalls,
  SUCCEEDED,
} from "./session-calls.ts";
import type { SessionRecord, SessionRecords } from "./session-records.ts";
import { SessionStreams, type StreamSession } from "./session-streams.ts";

/** Ends a session with one server after this many consecutive failed restarts. */
const MAX_FAILED_STARTS = 3;
/** Limits how long restoring its settings delays a resumed session. */
const RESTORE_MS = 5_000;
const REMOVED = "its servers were removed from the configuration";
const INITIALIZED = "notifications/initialized";
const CANCELED = "notifications/cancelled";
const LISTS = ["tools", "prompts", "resources"] as const;

export interface SessionHost extends Heartbeats {
  readonly nowMs: number;
  readonly records: SessionRecords;
  /** The value 0 disables parking. */
  readonly parkAfterMs: number;
  /** Makes the shutdown wait for this promise. */
  waitFor(closing: Promise<unknown>): void;
  sessionOpened(session: Session): void;
  /** `isForGood` is false if the client may continue the session in this or another process. */
  sessionEnded(session: Session, reason: string, isForGood: boolean): void;
}

export interface SessionOrigin {
  readonly id: string;
  /** The record is undefined if other processes cannot resume the session. */
  readonly record?: SessionRecord;
  /**
   * Event numbers of a resumed session start after this number, because an earlier process may have used the lower
   * ones.
   */
  readonly eventsBefore?: number;
}

export class Session implements UpstreamListener, StreamSession, UpstreamHolder, PeerSession, CallSession {
  readonly id: string;
  readonly owner: string | undefined;
  readonly user: string | undefined;
  readonly client: string;
  readonly record: SessionRecord | undefined;
  readonly peers: SessionPeers;
  recordedMs: number;
  version = "";
  lastUsedMs: number;
  readonly #host: SessionHost;
  readonly #streams: SessionStreams;
  readonly #questions: ClientQuestions;
  readonly calls: SessionCalls;
  readonly isResumed: boolean;
  #router: Router | undefined = undefined;
  #state: "opening" | "open" | "ended" = "opening";
  #isInitialized: boolean;
  #isParked = false;
  #isDraining = false;
  #isRetiring = false;
  #hadStream: boolean;
  #clientInfo: ClientInfo | undefined = undefined;

  constructor(
    { id, record, eventsBefore }: SessionOrigin,
    { owner, user }: { readonly owner: string | undefined; readonly user: string | undefined },
    account: MemoryAccount,
    host: SessionHost,
  ) {
    this.id = id;
    this.record = record;
    this.owner = owner;
    this.user = user;
    this.client = account.client;
    this.#host = host;
    this.lastUsedMs = host.nowMs;
    this.recordedMs = this.lastUsedMs;
    this.isResumed = eventsBefore !== undefined;
    // The client may have initialized the session and opened a stream before.
    this.#isInitialized = this.isResumed;
    this.#hadStream = this.isResumed;
    this.peers = new SessionPeers(record?.name, host.records.replication, this);
    this.#streams = new SessionStreams(this, account, eventsBefore);
    this.#questions = new ClientQuestions(record, host.records.answers);
    this.calls = new SessionCalls(this);
  }

  get general(): EventStream {
    return this.#streams.general;
  }

  get isOpening(): boolean {
    return this.#state === "opening";
  }

  get isOpen(): boolean {
    return this.#state === "open" && !this.#isRetiring;
  }

  get names(): Names | undefined {
    return this.#router?.names;
  }

  get upstreams(): readonly Upstream[] {
    return this.#router?.upstreams ?? [];
  }

  get pendingCalls(): number {
    return this.calls.size;
  }

  get isIdle(): boolean {
    return this.#state === "open" && this.pendingCalls === 0 && !this.general.isConnected;
  }

  open(
    router: Router,
    request: ClientRequest,
    sink: ResponseReceiver,
    report: CallReport,
    wire: WireTap | undefined,
    guardrails: McpGuardrails | undefined,
  ): BackendRun {
    this.#clientInfo = clientInfoIn(request);
    // The head is sent with the outcome, or after `KEEP_ALIVE_MS`.
    const stream = this.createStream(KEEP_ALIVE_MS);
    stream.attach(sink);
    const done = (outcome: RouterOutcome): void => {
      report.ended(request, undefined, outcome.ok ? SUCCEEDED : failureOutcome(outcome.failure));
      if (outcome.ok) stream.last(withId(outcome.answer, request.id));
      else if (stream.hasHead) stream.last(outcome.text(request.id));
      else {
        stream.abort();
        outcome.refuse(sink, request.id);
      }
    };
    this.#startServers(router, done, true, (opened) => openGuarded(router, request, guardrails, opened, wire));
    return {
      abort: () => {
        stream.abort();
        // The client has no response to `initialize`, so it cannot use the session.
        if (!this.isOpening) return;
        report.ended(request, undefined, CANCELLED);
        this.end("the client disconnected before the session was open");
      },
      resume: () => stream.resume(),
    };
  }

  openOnStream(
    router: Router,
    request: ClientRequest,
    report: CallReport,
    wire: WireTap | undefined,
    guardrails: McpGuardrails | undefined,
  ): void {
    this.#clientInfo = clientInfoIn(request);
    const done = (outcome: RouterOutcome): void => {
      report.ended(request, undefined, outcome.ok ? SUCCEEDED : failureOutcome(outcome.failure));
      this.general.event(outcome.ok ? withId(outcome.answer, request.id) : outcome.text(request.id));
    };
    this.#startServers(router, done, true, (opened) => openGuarded(router, request, guardrails, opened, wire));
  }

  /** Repeats the handshake of a session from its record. Resolves with undefined on success. */
  resume(router: Router, request: ClientRequest): Promise<Failure | undefined> {
    this.#clientInfo = clientInfoIn(request);
    return new Promise((resolve) => {
      const done = (outcome: RouterOutcome): void => resolve(outcome.ok ? undefined : outcome.failure);
      this.#startServers(router, done, false, (opened) => router.open(opened));
    });
  }

  joinReplicas(): Promise<void> {
    return this.peers.join();
  }

  createStream(primeAfterMs?: number, answers?: string): EventStream {
    return this.#streams.create(primeAfterMs, answers);
  }

  /** The HTTP+SSE transport uses one event stream for all messages, and the session ends with it. */
  openStream(sink: ResponseReceiver, endpoint: string): BackendRun {
    return this.#streams.openOnly(sink, endpoint, () => this.end("the client closed its event stream"));
  }

  get router(): Router | undefined {
    return this.#router;
  }

  callStarted(method: string): void {
    this.#used();
    // The client may have sent `notifications/initialized` to another replica.
    if (this.peers.isShared && method !== "ping") this.#initializeServers();
    this.#isParked = false;
  }

  callFinished(): void {
    this.#used();
    if (this.pendingCalls > 0) return;
    if (this.#isDraining) this.#streams.disconnect();
    if (this.#isRetiring) this.end(REMOVED);
  }

  notify(message: ClientNotification, wire: WireTap | undefined): void {
    this.#used();
    if (message.method === CANCELED) {
      if (!this.calls.cancel(message)) this.peers.broadcast(message);
      return;
    }
    this.#notifyServers(message, wire);
    if (this.peers.isShared) this.peers.broadcast(message);
  }

  respond(response: ClientResponse, wire: WireTap | undefined): void {
    this.#used();
    this.#questions.answered(response, wire);
  }

  /**
   * Serves a GET with the general stream, or resumes the response that `after` identifies. `lifeMs` is the remaining
   * lifetime of the client's credential.
   */
  listen(sink: ResponseReceiver, after: EventPlace | undefined, lifeMs?: number): BackendRun {
    this.#used();
    const resumed = after && this.#streams.resumeResponse(sink, after, lifeMs);
    if (resumed) return resumed;
    this.#hadStream = true;
    this.#unpark();
    return this.#streams.listen(sink, after, lifeMs);
  }

  sweep(nowMs: number): void {
    this.#streams.sweep(nowMs);
    this.#questions.sweep(nowMs);
    for (const upstream of this.upstreams) upstream.sweep(nowMs);
    const { parkAfterMs } = this.#host;
    if (parkAfterMs > 0 && nowMs - this.lastUsedMs >= parkAfterMs) this.#park();
  }

  end(reason: string, isForGood = true): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.calls.abandon(`the session ended: ${reason}`);
    this.#questions.close();
    this.#streams.disconnect();
    this.peers.leave();
    this.#host.sessionEnded(this, reason, isForGood);
  }

  detail(): Record<string, unknown> {
    return {
      protocolVersion: this.version,
      idleMs: Math.round(this.nowMs - this.lastUsedMs),
      pendingCalls: this.pendingCalls,
      listening: this.general.isConnected,
      ...(this.owner === undefined ? {} : { owner: shownPrincipal(this.owner) }),
      ...(this.user === undefined ? {} : { user: this.user }),
      ...(this.#clientInfo === undefined ? {} : { client: this.#clientInfo }),
      calls: this.calls.count,
      errors: this.calls.errorCount,
      targets: this.upstreams.map((upstream) => upstream.detail()),
    };
  }

  change(change: TargetChange): readonly Upstream[] {
    if (this.#state !== "open" || this.#router === undefined) return [];
    const before = this.#router.upstreams;
    const left = this.#router.change(change);
    if (this.upstreams.length === 0) this.retire();
    else if (this.upstreams !== before) for (const kind of LISTS) this.#streams.send(listChanged(kind));
    return left;
  }

  /** Rejects new requests and ends the session when the pending calls are complete. */
  retire(): void {
    this.#isRetiring = true;
    if (this.#state === "open" && this.pendingCalls === 0) this.end(REMOVED);
  }

  /**
   * Closes the general stream at shutdown, after the last pending response, because that response may use the stream.
   */
  drain(): void {
    this.#isDraining = true;
    if (this.pendingCalls === 0) this.#streams.disconnect();
  }

  /**
   * Sends a server's question on the stream of its call. If only the general stream is connected, the question is sent
   * on that stream.
   */
  ask(question: Question, stream: EventStream): void {
    const chosen = stream.isConnected || !this.general.isConnected ? stream : this.general;
    this.#questions.ask(question, chosen, this.nowMs);
  }

  notified(upstream: Upstream, message: ServerMessage): void {
    if (this.#state === "ended") return;
    const text = this.#router?.notificationText(upstream, message);
    if (text !== undefined) this.#streams.send(text);
  }

  /** Notifies the client that the lists changed, because a server became available. */
  arrived(upstream: Upstream): void {
    for (const kind of LISTS)
      if (upstream.about?.capabilities[kind] !== undefined) this.notified(upstream, asServerMessage(listChanged(kind)));
  }

  asked(_upstream: Upstream, question: Question): void {
    this.#questions.ask(question, { event: (text) => this.#streams.send(text) }, this.nowMs);
  }

  canDeliverQuestions(): boolean {
    return this.general.isConnected;
  }

  lost(upstream: Upstream, loss: ConnectionLoss): void {
    if (this.#state !== "open" || !this.upstreams.includes(upstream)) return;
    if (loss.failedStarts >= MAX_FAILED_STARTS && this.upstreams.length === 1)
      this.end(`target "${upstream.target.name}" ${loss.reason}`);
    // A client with a general stream expects notifications, which require a connected server.
    else if (this.general.isConnected) upstream.reconnect();
  }

  get nowMs(): number {
    return this.#host.nowMs;
  }

  get primesStreams(): boolean {
    return allowsPrimingEvents(this.version);
  }

  get heartbeats(): Heartbeats {
    return this.#host;
  }

  streamClosed(): void {
    this.#used();
  }

  congested(isCongested: boolean): void {
    for (const upstream of this.upstreams) {
      if (isCongested) upstream.pause();
      else upstream.resume();
    }
  }

  remoteNotification(message: ClientNotification): void {
    if (message.method === CANCELED) this.calls.cancelRemotely(message);
    else if (message.method === INITIALIZED) this.#initializeServers();
    else this.#notifyServers(message, undefined);
  }

  remoteSetting(request: ClientRequest): Promise<void> {
    return this.#repeat(request);
  }

  remoteServerMessage(text: string): void {
    this.general.event(text);
  }

  remoteStreamOpened(): void {
    this.#streams.sendUndelivered();
  }

  remoteEnd(): void {
    this.end("it was ended elsewhere", false);
  }

  #used(): void {
    this.lastUsedMs = this.nowMs;
  }

  /** Does not call `done` if the session has already ended. A failure ends the session. */
  #startServers(
    router: Router,
    done: (outcome: RouterOutcome) => void,
    isForGood: boolean,
    open: (opened: (outcome: RouterOutcome) => void) => void,
  ): void {
    const opened = (outcome: RouterOutcome): void => {
      if (this.#state !== "opening") return;
      if (outcome.ok) {
        this.#state = "open";
        this.version = outcome.version;
        this.#used();
        void this.joinReplicas();
        this.calls.cancelWaiting();
      }
      done(outcome);
      if (!outcome.ok) this.end(outcome.reason, isForGood);
      else if (this.#isRetiring) this.retire();
      else this.#host.sessionOpened(this);
    };
    this.#router = router;
    open((outcome) => {
      if (outcome.ok && this.isResumed) void this.#restoreSettings().then(() => opened(outcome));
      else opened(outcome);
    });
  }

  #notifyServers(message: ClientNotification, wire: WireTap | undefined): void {
    this.#isInitialized ||= message.method === INITIALIZED;
    this.#router?.notify(message, wire);
  }

  #initializeServers(): void {
    if (this.#isInitialized) return;
    this.#notifyServers(asClientNotification(INITIALIZED), undefined);
  }

  /** Repeats a setting that the client sent to another process. Resolves when the request ends. */
  #repeat(request: ClientRequest): Promise<void> {
    return new Promise((resolve) => {
      if (this.#router === undefined) return resolve();
      const done = (): void => resolve();
      // The request was checked when the client sent it.
      this.#router.run(ownCall(request, { isRepeated: true, answered: done, failed: done }));
    });
  }

  async #restoreSettings(): Promise<void> {
    const settings = await this.peers.storedSettings();
    if (settings.length === 0) return;
    await new Promise<void>((resolve) => {
      const timer = this.#host.records.replication.clock.after(RESTORE_MS, resolve);
      void Promise.all(settings.map((request) => this.#repeat(request))).then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  /**
   * Stops the processes of an idle client, because many clients disconnect without DELETE. The next request starts them
   * again.
   */
  #park(): void {
    if (!this.#hadStream || !this.isIdle || this.#isRetiring || this.#isParked) return;
    this.#isParked = true;
    for (const stopping of this.upstreams.flatMap((upstream) => upstream.park?.() ?? [])) this.#host.waitFor(stopping);
  }

  #unpark(): void {
    if (this.#isParked) for (const upstream of this.upstreams) upstream.reconnect();
    this.#isParked = false;
  }
}

interface ClientInfo {
  readonly name: string;
  readonly version?: string;
}

function clientInfoIn({ params }: ClientRequest): ClientInfo | undefined {
  const { name, version } = (params.clientInfo ?? {}) as { readonly name?: unknown; readonly version?: unknown };
  if (typeof name !== "string") return undefined;
  return typeof version === "string" ? { name, version } : { name };
}

function listChanged(kind: (typeof LISTS)[number]): string {
  return notificationText(`notifications/${kind}/list_changed`, "{}");
}
