/**
 * One client of the legacy era and everything that belongs to it: its servers, its open streams, the questions
 * of servers that it has to answer, the events it may have missed. A session ends by DELETE, by being idle, or
 * when its server cannot be brought back; then every request is answered with 404 and the client starts anew.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import type { McpAccess } from "../../core/exchange.ts";
import { shownPrincipal } from "../../core/principal.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import { LinkedList } from "../../lib/text/linked-list.ts";
import type { Names } from "../many/names.ts";
import type { Router, RouterOutcome } from "../many/router.ts";
import type { TargetChange } from "../many/target-change.ts";
import type { Loss } from "../servers/link-contract.ts";
import type { Tenant } from "../servers/tenant.ts";
import type { Upstream, UpstreamUser } from "../servers/upstream.ts";
import type { Question } from "../wire/call.ts";
import { allowsPrimingEvents } from "../wire/era.ts";
import {
  asServerMessage,
  type ClientNotification,
  type ClientRequest,
  type ClientResponse,
  INVALID_REQUEST,
  notificationText,
  type ServerMessage,
} from "../wire/json-rpc.ts";
import { find, slice } from "../wire/json-text.ts";
import type { CallReport } from "./call-outcome.ts";
import { ClientQuestions } from "./client-questions.ts";
import type { EventStream } from "./event-stream.ts";
import { RequestCall } from "./request-call.ts";
import type { SessionRecord } from "./session-records.ts";
import { SessionStreams, type StreamSession } from "./session-streams.ts";

/** A server that fails so often in a row after a restart will not come back. */
const MAX_FAILED_STARTS = 3;
/** The one stream of the old transport does not end with an answer. */
const ENDLESS = { left: Number.POSITIVE_INFINITY };

const RETIRED = "its servers are not in the configuration any more";

export interface SessionEnv {
  readonly nowMs: () => number;
  /** How long a session may be left alone before its processes are stopped; 0: for ever. */
  parkAfterMs(): number;
  /** Something that the end of the gateway must wait for. */
  closing(done: Promise<unknown>): void;
  streamOpened(stream: EventStream): void;
  streamClosed(stream: EventStream): void;
  /** Its servers have answered. */
  isOpen(session: Session): void;
  /** The session is over. */
  ended(session: Session, reason: string, isForGood: boolean): void;
}

/** A session that goes on in another process than the one that it began in. */
export interface SessionOrigin {
  readonly id: string;
  /** How the store knows it; undefined if it cannot go on elsewhere. */
  readonly record?: SessionRecord;
  /** An earlier process may have given the numbers up to this one to events. */
  readonly eventsBefore?: number;
}

export class Session implements UpstreamUser, StreamSession, Tenant {
  readonly id: string;
  readonly owner: string | undefined;
  readonly record: SessionRecord | undefined;
  /** When the store was last told that it is in use. */
  recordedMs: number;
  readonly createdMs: number;
  version = "";
  lastUsedMs: number;
  readonly #env: SessionEnv;
  #router: Router | undefined = undefined;
  readonly #streams: SessionStreams;
  #questions: ClientQuestions | undefined = undefined;
  readonly #inFlight = new LinkedList<RequestCall>();
  #state: "opening" | "open" | "ended" = "opening";
  #isDraining = false;
  #isRetiring = false;
  /** Its client had a general stream: without one there is no telling whether it is gone. */
  #hadStream: boolean;
  #isParked = false;

  constructor({ id, record, eventsBefore }: SessionOrigin, owner: string | undefined, env: SessionEnv) {
    this.id = id;
    this.record = record;
    this.owner = owner;
    this.#env = env;
    this.createdMs = env.nowMs();
    this.lastUsedMs = this.createdMs;
    this.recordedMs = this.createdMs;
    this.#streams = new SessionStreams(this, eventsBefore);
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
    return this.#router?.names;
  }

  get upstreams(): readonly Upstream[] {
    return this.#router?.upstreams ?? [];
  }

  get pendingCalls(): number {
    return this.#inFlight.size;
  }

  /** Nobody is connected and nothing runs. */
  get isIdle(): boolean {
    return this.#state === "open" && this.pendingCalls === 0 && !this.general.isConnected;
  }

  /** Brings up its servers. `done` is told, unless it ended meanwhile; a failure ends it. */
  bringUp(router: Router, done: (outcome: RouterOutcome) => void, wire: WireTap | undefined, isForGood = true): void {
    this.#router = router;
    router.open((outcome) => {
      if (this.#state !== "opening") return;
      if (outcome.ok) {
        this.#state = "open";
        this.version = outcome.version;
        this.lastUsedMs = this.#env.nowMs();
      }
      done(outcome);
      if (!outcome.ok) this.end(outcome.reason, isForGood);
      else if (this.#isRetiring) this.retire();
      else this.#env.isOpen(this);
    }, wire);
  }

  /** A stream for the answer of one POST. */
  createStream(primeAfterMs?: number): EventStream {
    return this.#streams.create(primeAfterMs);
  }

  /** The old transport: everything goes over one event stream, and the session lives as long as it does. */
  openStream(sink: BackendCall, endpoint: string): BackendRun {
    this.general.attach(sink);
    this.general.announce(endpoint);
    return {
      abort: () => {
        this.general.abort();
        this.end("the client closed its event stream");
      },
      resume: () => this.general.resume(),
    };
  }

  /** A request whose answer goes over the one event stream. */
  requestOnStream(
    request: ClientRequest,
    access: McpAccess | undefined,
    headers: HeaderList | undefined,
    report: CallReport,
    wire: WireTap | undefined,
  ): void {
    this.lastUsedMs = this.#env.nowMs();
    this.#start(new RequestCall(request, this, this.general, ENDLESS, headers, report, wire), access);
  }

  /** Answers the requests of one POST on a stream of their own. */
  request(
    requests: readonly ClientRequest[],
    sink: BackendCall,
    access: McpAccess | undefined,
    headers: HeaderList | undefined,
    report: CallReport,
    wire: WireTap | undefined,
  ): BackendRun {
    this.lastUsedMs = this.#env.nowMs();
    this.#isParked = false;
    const stream = this.createStream();
    stream.attach(sink);
    const group = { left: requests.length };
    for (const request of requests)
      this.#start(new RequestCall(request, this, stream, group, headers, report, wire), access);
    return stream;
  }

  /** Messages that want no answer. */
  notify(message: ClientNotification, wire: WireTap | undefined): void {
    this.lastUsedMs = this.#env.nowMs();
    if (message.method === "notifications/cancelled") this.#cancel(message);
    else this.#router?.notify(message, wire);
  }

  respond(response: ClientResponse, wire: WireTap | undefined): void {
    this.lastUsedMs = this.#env.nowMs();
    this.#questions?.answered(response, wire);
  }

  /** A GET: the general stream, or the rest of an answer that broke off. */
  listen(sink: BackendCall, after: { stream: number; number: number } | undefined): BackendRun {
    this.lastUsedMs = this.#env.nowMs();
    const resumed = after && this.#streams.find(after.stream);
    if (after && resumed) {
      resumed.attach(sink, after.number);
      resumed.begin();
      return resumed;
    }
    this.#hadStream = true;
    if (this.#isParked) for (const upstream of this.upstreams) upstream.revive();
    this.#isParked = false;
    return this.#streams.listen(sink, after);
  }

  /** Called every now and then. */
  sweep(nowMs: number): void {
    this.#streams.log.expire(nowMs);
    for (const upstream of this.upstreams) upstream.sweep(nowMs);
    const parkAfterMs = this.#env.parkAfterMs();
    if (parkAfterMs > 0 && nowMs - this.lastUsedMs >= parkAfterMs) this.#park();
  }

  end(reason: string, isForGood = true): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#inFlight.each((call) => call.abandon(`the session ended: ${reason}`));
    this.#questions = undefined;
    this.general.disconnect();
    this.#env.ended(this, reason, isForGood);
  }

  detail(): Record<string, unknown> {
    return {
      protocolVersion: this.version,
      idleMs: Math.round(this.#env.nowMs() - this.lastUsedMs),
      pendingCalls: this.pendingCalls,
      listening: this.general.isConnected,
      ...(this.owner === undefined ? {} : { owner: shownPrincipal(this.owner) }),
      targets: this.upstreams.map((upstream) => upstream.detail()),
    };
  }

  // A request of this session ended.

  finished(call: RequestCall): void {
    this.#inFlight.remove(call);
    this.lastUsedMs = this.#env.nowMs();
    if (this.pendingCalls > 0) return;
    if (this.#isDraining) this.general.disconnect();
    if (this.#isRetiring) this.end(RETIRED);
  }

  /** Other targets from now on. Returns the servers that are left; without any other the session comes to its end. */
  change(change: TargetChange): readonly Upstream[] {
    if (this.#router === undefined || this.#state !== "open") return [];
    const before = this.#router.upstreams;
    const left = this.#router.change(change);
    if (this.#router.upstreams.length === 0) this.retire();
    else if (this.#router.upstreams !== before)
      for (const kind of ["tools", "prompts", "resources"])
        this.general.event(notificationText(`notifications/${kind}/list_changed`, "{}"));
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
    if (this.pendingCalls === 0) this.general.disconnect();
  }

  /** A server wants something from the client, on the stream of the call it belongs to or on the general one. */
  ask(question: Question, stream: EventStream): void {
    if (this.#state === "ended") {
      question.answer('"error":{"code":-32603,"message":"The client is gone"}');
      return;
    }
    this.#questions ??= new ClientQuestions();
    this.#questions.ask(question, stream.isConnected || !this.general.isConnected ? stream : this.general);
  }

  // What servers report beyond calls.

  notified(upstream: Upstream, message: ServerMessage): void {
    if (this.#state === "ended") return;
    const text = this.#router?.notificationText(upstream, message);
    if (text !== undefined) this.general.event(text);
  }

  /** A server that the session was opened without is there: what the client listed lacks its part. */
  arrived(upstream: Upstream): void {
    for (const kind of ["tools", "prompts", "resources"])
      if (upstream.about?.capabilities[kind] !== undefined)
        this.notified(upstream, asServerMessage(notificationText(`notifications/${kind}/list_changed`, "{}")));
  }

  asked(_upstream: Upstream, question: Question): void {
    this.ask(question, this.general);
  }

  hearsQuestions(): boolean {
    return this.general.isConnected;
  }

  lost(upstream: Upstream, loss: Loss): void {
    if (this.#state !== "open" || !this.upstreams.includes(upstream)) return;
    if (loss.failedStarts >= MAX_FAILED_STARTS && this.upstreams.length === 1)
      this.end(`target "${upstream.target.name}" ${loss.reason}`);
    // A client that listens hears nothing from a server that is not there.
    else if (this.general.isConnected) upstream.revive();
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
    this.lastUsedMs = this.#env.nowMs();
  }

  congested(isCongested: boolean): void {
    for (const upstream of this.upstreams) {
      if (isCongested) upstream.pause();
      else upstream.resume();
    }
  }

  /**
   * Many clients go without a word. The processes of one whose stream has ended and that is silent are stopped; should
   * it come back, they are started again and the handshake is repeated, as after a crash.
   */
  #park(): void {
    if (this.#isParked || !this.#hadStream || !this.isIdle || this.#isRetiring) return;
    this.#isParked = true;
    for (const upstream of this.upstreams) {
      const parked = upstream.park?.();
      if (parked) this.#env.closing(parked);
    }
  }

  #start(call: RequestCall, access: McpAccess | undefined): void {
    this.#inFlight.add(call);
    if (this.#router) call.running = this.#router.run(call, access);
    else
      call.failed({ code: INVALID_REQUEST, status: 400, message: "Invalid Request: the session is not initialized" });
  }

  #cancel(message: ClientNotification): void {
    const { reason } = message.params;
    const span = find(message.text, 0, "params", "requestId");
    const id = span && slice(message.text, span);
    this.#inFlight.find(({ request }) => request.id === id)?.cancel(typeof reason === "string" ? reason : undefined);
  }
}
