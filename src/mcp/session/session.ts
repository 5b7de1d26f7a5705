/**
 * One client of the legacy era and everything that belongs to it: its servers, its open streams, the questions
 * of servers that it has to answer, the events it may have missed. A session ends by DELETE, by being idle, or
 * when its server cannot be brought back; then every request is answered with 404 and the client starts anew.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import type { McpAccess } from "../../core/facts.ts";
import type { WireTap } from "../../core/wire.ts";
import type { Names } from "../aggregation/names.ts";
import type { Router, RouterOutcome, TargetChange } from "../aggregation/router.ts";
import type { Question } from "../protocol/call.ts";
import {
  asServerMessage,
  type ClientNotification,
  type ClientRequest,
  type ClientResponse,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { allowsPrimingEvents } from "../protocol/protocol-version.ts";
import type { ConnectionLoss } from "../server-side/server-connection.ts";
import type { Upstream, UpstreamHolder, UpstreamListener } from "../server-side/upstream.ts";
import { ClientQuestions } from "./client-questions.ts";
import type { EventStream } from "./event-stream.ts";
import { RunningCalls } from "./running-calls.ts";
import { type CallContext, ENDLESS, RequestCall } from "./session-call.ts";
import { type ChargedOrigin, detailOf, type SessionEnv } from "./session-env.ts";
import { SessionPeer } from "./session-peer.ts";
import type { SessionRecord } from "./session-records.ts";
import { SessionServers } from "./session-servers.ts";
import { SessionStreams, type StreamSession } from "./session-streams.ts";

/** A server that fails so often in a row after a restart will not come back. */
const MAX_FAILED_STARTS = 3;
const RETIRED = "its servers are not in the configuration any more";

export class Session implements UpstreamListener, StreamSession, UpstreamHolder {
  readonly id: string;
  readonly owner: string | undefined;
  readonly client: string;
  readonly record: SessionRecord | undefined;
  /** When the store was last told that it is in use. */
  recordedMs: number;
  version = "";
  lastUsedMs: number;
  readonly #env: SessionEnv<Session>;
  readonly #servers = new SessionServers();
  /** What it has to do with other replicas. */
  readonly peer: SessionPeer;
  readonly #streams: SessionStreams;
  readonly #questions: ClientQuestions;
  readonly #calls = new RunningCalls();
  #state: "opening" | "open" | "ended" = "opening";
  #isDraining = false;
  #isRetiring = false;
  /** Its client had a general stream: without one there is no telling whether it is gone. */
  #hadStream: boolean;

  constructor(
    { id, record, eventsBefore, account }: ChargedOrigin,
    owner: string | undefined,
    env: SessionEnv<Session>,
  ) {
    this.id = id;
    this.record = record;
    this.owner = owner;
    this.client = account.client;
    this.#env = env;
    this.lastUsedMs = env.nowMs();
    this.recordedMs = this.lastUsedMs;
    this.peer = new SessionPeer({ name: record?.name, wasElsewhere: eventsBefore !== undefined }, env.peers, {
      servers: this.#servers,
      calls: this.#calls,
      streams: () => this.#streams,
      end: (reason) => this.end(reason, false),
    });
    this.#streams = new SessionStreams(this, this.peer, account, eventsBefore);
    this.#questions = new ClientQuestions(record, env.answers);
    // One that began elsewhere may have had a stream there.
    this.#hadStream = eventsBefore !== undefined;
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

  /** How its client names things; undefined until there is a server. */
  get names(): Names | undefined {
    return this.#servers.names;
  }

  get upstreams(): readonly Upstream[] {
    return this.#servers.all;
  }

  get pendingCalls(): number {
    return this.#calls.size;
  }

  /** Nobody is connected and nothing runs. */
  get isIdle(): boolean {
    return this.#state === "open" && this.pendingCalls === 0 && !this.general.isConnected;
  }

  /** Brings up its servers. `done` is told, unless it ended meanwhile; a failure ends it. */
  bringUp(router: Router, done: (outcome: RouterOutcome) => void, wire: WireTap | undefined, isForGood = true): void {
    const opened = (outcome: RouterOutcome): void => {
      if (this.#state !== "opening") return;
      if (outcome.ok) {
        this.#state = "open";
        this.version = outcome.version;
        this.#used();
        void this.peer.join();
      }
      done(outcome);
      if (!outcome.ok) this.end(outcome.reason, isForGood);
      else if (this.#isRetiring) this.retire();
      else this.#env.isOpen(this);
    };
    this.#servers.open(router, (it) => (it.ok ? this.peer.restore(() => opened(it)) : opened(it)), wire);
  }

  /** A stream for the answer of one POST. */
  createStream(primeAfterMs?: number, answers?: string): EventStream {
    return this.#streams.create(primeAfterMs, answers);
  }

  /** The old transport: everything goes over one event stream, and the session lives as long as it does. */
  openStream(sink: BackendCall, endpoint: string): BackendRun {
    return this.#streams.openOnly(sink, endpoint, () => this.end("the client closed its event stream"));
  }

  /** A request whose answer goes over the one event stream. */
  requestOnStream(request: ClientRequest, context: CallContext): void {
    this.#used();
    this.#start(new RequestCall(request, this, this.general, ENDLESS, context), context.access);
  }

  /** Answers the requests of one POST on a stream of their own. */
  request(requests: readonly ClientRequest[], sink: BackendCall, context: CallContext): BackendRun {
    this.#used();
    const stream = this.createStream(context.primeAfterMs, requests.length === 1 ? requests[0]?.id : undefined);
    stream.attach(sink);
    const group = { left: requests.length };
    for (const request of requests) this.#start(new RequestCall(request, this, stream, group, context), context.access);
    return stream;
  }

  /** Messages that want no answer. */
  notify(message: ClientNotification, wire: WireTap | undefined): void {
    this.#used();
    this.peer.notify(message, wire);
  }

  respond(response: ClientResponse, wire: WireTap | undefined): void {
    this.#used();
    this.#questions.answered(response, wire);
  }

  /** A GET: the general stream, or the rest of an answer that broke off. `lifeMs`: how long its credential lasts. */
  listen(sink: BackendCall, after: Parameters<SessionStreams["listen"]>[1], lifeMs?: number): BackendRun {
    this.#used();
    const resumed = after && this.#streams.takeUp(sink, after, lifeMs);
    if (resumed) return resumed;
    this.#hadStream = true;
    this.#servers.unpark();
    return this.#streams.listen(sink, after, lifeMs);
  }

  /** Called every now and then. */
  sweep(nowMs: number): void {
    this.#streams.sweep(nowMs);
    this.#servers.sweep(nowMs);
    const parkAfterMs = this.#env.parkAfterMs();
    if (parkAfterMs > 0 && nowMs - this.lastUsedMs >= parkAfterMs) this.#park();
  }

  end(reason: string, isForGood = true): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#calls.abandon(`the session ended: ${reason}`);
    this.#questions.close();
    this.#streams.disconnect();
    this.peer.leave();
    this.#env.ended(this, reason, isForGood);
  }

  detail(): Record<string, unknown> {
    return detailOf(this, this.#env.nowMs());
  }

  // A request of this session ended.

  finished(call: RequestCall): void {
    this.#calls.remove(call);
    this.#used();
    if (this.pendingCalls > 0) return;
    if (this.#isDraining) this.#streams.disconnect();
    if (this.#isRetiring) this.end(RETIRED);
  }

  /** Other targets from now on. Returns the servers that are left; without any other the session comes to its end. */
  change(change: TargetChange): readonly Upstream[] {
    if (this.#state !== "open") return [];
    const { left, told } = this.#servers.change(change);
    for (const text of told) this.#streams.say(text);
    if (this.upstreams.length === 0) this.retire();
    return left;
  }

  /** Takes no more requests, and ends when those that run are answered. */
  retire(): void {
    this.#isRetiring = true;
    if (this.#state === "open" && this.pendingCalls === 0) this.end(RETIRED);
  }

  /** The gateway stops: the general stream ends when no answer is due any more, which may go over it. */
  drain(): void {
    this.#isDraining = true;
    if (this.pendingCalls === 0) this.#streams.disconnect();
  }

  /** A server wants something from the client, on the stream of the call it belongs to or on the general one. */
  ask(question: Question, stream: EventStream): void {
    this.#questions.ask(question, stream.isConnected || !this.general.isConnected ? stream : this.general);
  }

  // What servers report beyond calls.

  notified(upstream: Upstream, message: ServerMessage): void {
    if (this.#state === "ended") return;
    const text = this.#servers.notificationText(upstream, message);
    if (text !== undefined) this.#streams.say(text);
  }

  /** A server that the session was opened without is there: what the client listed lacks its part. */
  arrived(upstream: Upstream): void {
    for (const text of this.#servers.arrivalOf(upstream)) this.notified(upstream, asServerMessage(text));
  }

  asked(_upstream: Upstream, question: Question): void {
    this.#questions.ask(question, { event: (text) => this.#streams.say(text) });
  }

  canDeliverQuestions(): boolean {
    return this.general.isConnected;
  }

  lost(upstream: Upstream, loss: ConnectionLoss): void {
    if (this.#state !== "open" || !this.upstreams.includes(upstream)) return;
    if (loss.failedStarts >= MAX_FAILED_STARTS && this.upstreams.length === 1)
      this.end(`target "${upstream.target.name}" ${loss.reason}`);
    // A client that listens hears nothing from a server that is not there.
    else if (this.general.isConnected) upstream.reconnect();
  }

  // What streams need to know.

  get nowMs(): number {
    return this.#env.nowMs();
  }

  get primesStreams(): boolean {
    return allowsPrimingEvents(this.version);
  }

  streamOpened(stream: EventStream): void {
    this.#env.streamOpened(stream);
  }

  streamClosed(stream: EventStream): void {
    this.#env.streamClosed(stream);
    this.#used();
  }

  congested(isCongested: boolean): void {
    this.#servers.congested(isCongested);
  }

  /**
   * Many clients go without a word. The processes of one whose stream has ended and that is silent are stopped; should
   * it come back, they are started again and the handshake is repeated, as after a crash.
   */
  #park(): void {
    if (!this.#hadStream || !this.isIdle || this.#isRetiring) return;
    for (const parked of this.#servers.park()) this.#env.closing(parked);
  }

  #used(): void {
    this.lastUsedMs = this.#env.nowMs();
  }

  #start(call: RequestCall, access: McpAccess | undefined): void {
    this.#calls.add(call);
    this.#servers.run(call, this.peer.spread(call), access);
  }
}
