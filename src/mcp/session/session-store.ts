/**
 * The sessions and lanes of one backend: unguessable ids, a bounded number, an end for those that nobody uses,
 * and the pulse that keeps their streams alive. It outlives reloads.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import type { IdSource } from "../../base/ids.ts";
import { LinkedList } from "../../base/linked-list.ts";
import { MemoryAccount, type MemoryBudget } from "../../base/memory-budget.ts";
import type { Task } from "../../base/tasks.ts";
import { GatewayError } from "../../core/errors.ts";
import { shownPrincipal } from "../../core/principal.ts";
import type { Logger } from "../../observe/log/logger.ts";
import type { Names } from "../aggregation/names.ts";
import type { TargetChange } from "../aggregation/router.ts";
import type { UpstreamDrain, UpstreamHolder } from "../server-side/upstream.ts";
import { Lane } from "./client-group.ts";
import type { Heartbeat } from "./event-stream.ts";
import { Session } from "./session.ts";
import { endShown, type SessionEnv, type SessionOrigin, shownId } from "./session-env.ts";
import type { KnownSession, SessionRecords } from "./session-records.ts";

/** Fast enough to prime a stream in time; runs only while streams are open. */
const BEAT_MS = 100;
const SWEEP_MS = 1_000;
/** A session that made room for another was unused at least this long. */
const MIN_EVICTABLE_MS = 10_000;
/** Sessions of a client that holds this many times as much as the new one's make room as soon as they are idle. */
const CROWDING = 10;
/** Of the idle sessions of the largest client, this part is ended at a time while memory is short. */
const RECLAIMED_SHARE = 0.125;
/** A client's modern requests have a lane for each client name and set of capabilities. */
const MAX_LANES_PER_CLIENT = 64;
/** What a session or lane takes besides what its client sent. */
const SESSION_BYTES = 8 * 1024;
/** The parameters of `initialize` are retained as text in several places and as objects. */
const RETAINED_COPIES = 4;
const RETRY_AFTER_SECONDS = "5";
/** How soon other replicas end a session that was ended here, at the latest; and how often the store is written. */
const RECORD_EVERY_MS = 30_000;

export interface StoreSettings {
  readonly maxSessions: number;
  readonly maxSessionsPerClient: number;
  readonly sessionIdleTtlMs: number;
  /** 0: never. */
  readonly parkAfterMs: number;
}

export interface StoreEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly ids: IdSource;
  readonly task: Task;
  readonly retirement: UpstreamDrain;
  readonly records: SessionRecords;
  readonly memory: MemoryBudget;
}

/** Whose session it is, and how much the session retains of what the client sent. */
export interface SessionClient {
  readonly client: string;
  /** Undefined for a client that no policy has identified. */
  readonly owner: string | undefined;
  readonly headerBytes: number;
}

interface Held {
  readonly task: Task;
  /** Undefined for servers that sessions share: they are no client's. */
  readonly account: MemoryAccount | undefined;
}

export class SessionStore {
  settings: StoreSettings;
  readonly #env: StoreEnv;
  readonly #sessions = new Map<string, Session>();
  readonly #lanes = new Map<string, Lane>();
  readonly #tenants = new Map<UpstreamHolder, Held>();
  /** How many sessions and lanes each client has. */
  readonly #counts = new Map<string, number>();
  readonly #laneCounts = new Map<string, number>();
  readonly #stopReclaiming: () => void;
  readonly #beating = new LinkedList<Heartbeat>();
  readonly #sessionEnv: SessionEnv<Session>;
  #pulse: Timer | undefined = undefined;
  #sweeper: Timer | undefined = undefined;
  /** The last one, for sessions that open meanwhile. */
  #change: TargetChange | undefined = undefined;
  readonly #retirement: UpstreamDrain;
  /** Connections of ended sessions that are still being closed. */
  readonly #closing = new Set<Promise<unknown>>();

  constructor(settings: StoreSettings, env: StoreEnv) {
    this.settings = settings;
    this.#env = env;
    this.#retirement = env.retirement;
    this.#stopReclaiming = env.memory.onShortage("sessions", { reclaim: (largest) => this.#reclaim(largest) });
    this.#sessionEnv = {
      nowMs: () => env.clock.monotonicMs(),
      answers: env.records.answers,
      peers: env.records.peers,
      parkAfterMs: () => this.settings.parkAfterMs,
      closing: (done) => this.#waitFor(done),
      streamOpened: (stream) => this.beatFor(stream),
      streamClosed: (stream) => this.#beating.remove(stream),
      isOpen: (session) => {
        if (session.record) env.records.begin(session.record);
        if (this.#change) this.#changeSession(session, this.#change);
      },
      ended: (session, reason, isForGood) => {
        this.#sessions.delete(session.id);
        if (session.record && isForGood) env.records.end(session.record);
        this.#ended(session, reason);
      },
    };
  }

  get size(): number {
    return this.#tenants.size;
  }

  /** A session that is not open yet. Without parameters it cannot go on in another process. Throws `overloaded`. */
  create(from: SessionClient, params?: string): Session {
    const account = this.#admit(from, params?.length ?? 0);
    const name = this.#env.ids.hex(16);
    return this.#add(
      params === undefined ? { id: name } : this.#env.records.issue(name, params, from.owner),
      from,
      account,
    );
  }

  /** A session that began in another process; it is not open yet. Throws `overloaded`. */
  adopt(id: string, { record, params }: KnownSession, from: SessionClient): Session {
    const account = this.#admit(from, params.length);
    return this.#add({ id, record, eventsBefore: this.#env.clock.now() }, from, account);
  }

  lane(key: string): Lane | undefined {
    return this.#lanes.get(key);
  }

  /** A lane that is not open yet. `identityChars`: what servers are told of its client. Throws `overloaded`. */
  createLane(key: string, owner: string, from: SessionClient, identityChars: number): Lane {
    const { client } = from;
    const isCrowded = (this.#laneCounts.get(client) ?? 0) >= MAX_LANES_PER_CLIENT;
    if (isCrowded && !this.#endIdle((tenant) => tenant instanceof Lane && this.#clientOf(tenant) === client))
      throw overloaded(`the limit of ${MAX_LANES_PER_CLIENT} client names and capabilities per client is reached`);
    const account = this.#admit(from, identityChars);
    const lane = new Lane(owner, client, {
      nowMs: () => this.#env.clock.monotonicMs(),
      ended: (ended, reason) => {
        for (const [one, held] of this.#lanes) if (held === ended) this.#lanes.delete(one);
        this.#ended(ended, reason);
      },
    });
    this.#lanes.set(key, lane);
    this.#laneCounts.set(client, (this.#laneCounts.get(client) ?? 0) + 1);
    this.#settle(lane, "mcp lane", shownPrincipal(owner), account);
    return lane;
  }

  /** The lane also serves requests with this key, unless another does. */
  alsoKnownAs(lane: Lane, key: string): void {
    if (!this.#lanes.has(key)) this.#lanes.set(key, lane);
  }

  /** A server that sessions share: it ends when nobody has used it for as long as a session may be idle. */
  addShared(server: UpstreamHolder, name: string): void {
    this.#settle(server, "mcp shared server", name, undefined);
  }

  /** A tenant that the store did not make ended. */
  sharedEnded(server: UpstreamHolder, reason: string): void {
    this.#ended(server, reason);
  }

  /** Gives signs of life until it is taken out. */
  beatFor(one: Heartbeat): void {
    this.#beating.add(one);
    this.#pulse ??= this.#env.clock.every(BEAT_MS, this.#beat);
  }

  noBeatFor(one: Heartbeat): void {
    this.#beating.remove(one);
  }

  /** The open session with this id, if it belongs to this owner. */
  find(id: string, owner: string | undefined): Session | undefined {
    const session = this.#sessions.get(id);
    return session?.isOpen === true && session.owner === owner ? session : undefined;
  }

  /** The session of the old transport with this id; it may not be initialized yet. */
  findStream(id: string, owner: string | undefined): Session | undefined {
    const session = this.#sessions.get(id);
    return session !== undefined && session.owner === owner && session.general.isConnected ? session : undefined;
  }

  /**
   * Ends an idle session or lane, of those that may go: of the client that holds the most, the one that was idle longest.
   * False if there is none. `client`: who needs the room.
   */
  makeRoom(mayGo: (tenant: UpstreamHolder) => boolean = () => true, client?: string): boolean {
    const nowMs = this.#env.clock.monotonicMs();
    const crowdedFrom = client === undefined ? Number.POSITIVE_INFINITY : CROWDING * (this.#countOf(client) + 1);
    let chosen: UpstreamHolder | undefined;
    let most = 0;
    for (const [tenant, { account }] of this.#tenants) {
      const count = this.#countOf(account?.client);
      if (count < most || (chosen !== undefined && count === most && tenant.lastUsedMs >= chosen.lastUsedMs)) continue;
      if (!tenant.isIdle || !mayGo(tenant)) continue;
      if (count < crowdedFrom && nowMs - tenant.lastUsedMs < MIN_EVICTABLE_MS) continue;
      chosen = tenant;
      most = count;
    }
    chosen?.end("the session limit was reached", false);
    return chosen !== undefined;
  }

  /** For a child of this client: only the client's own sessions may go. */
  makeRoomWithin(client: string, mayGo: (tenant: UpstreamHolder) => boolean): boolean {
    return this.#endIdle((tenant) => this.#clientOf(tenant) === client && mayGo(tenant));
  }

  /** Ends the one that was idle longest, and long enough. */
  #endIdle(mayGo: (tenant: UpstreamHolder) => boolean): boolean {
    let oldest: UpstreamHolder | undefined;
    for (const tenant of this.#tenants.keys())
      if ((oldest === undefined || tenant.lastUsedMs < oldest.lastUsedMs) && tenant.isIdle && mayGo(tenant))
        oldest = tenant;
    if (oldest === undefined || this.#env.clock.monotonicMs() - oldest.lastUsedMs < MIN_EVICTABLE_MS) return false;
    oldest.end("its client reached a limit", false);
    return true;
  }

  /** Memory is short: ends a part of the idle sessions of the client that holds the most, here or everywhere. */
  #reclaim(largest: string | undefined): boolean {
    const isHere = largest !== undefined && this.#countOf(largest) > 0;
    const client = isHere ? largest : this.#largestClient();
    const idle = [...this.#tenants.keys()].filter((tenant) => tenant.isIdle && this.#clientOf(tenant) === client);
    const count = Math.ceil(idle.length * RECLAIMED_SHARE);
    idle.sort((a, b) => a.lastUsedMs - b.lastUsedMs);
    for (const tenant of idle.slice(0, count)) tenant.end("memory is short", false);
    return count > 0;
  }

  #largestClient(): string | undefined {
    let largest: string | undefined;
    for (const client of this.#counts.keys())
      if (largest === undefined || this.#countOf(client) > this.#countOf(largest)) largest = client;
    return largest;
  }

  #clientOf(tenant: UpstreamHolder): string | undefined {
    return this.#tenants.get(tenant)?.account?.client;
  }

  #countOf(client: string | undefined): number {
    return client === undefined ? 0 : (this.#counts.get(client) ?? 0);
  }

  /** Other targets: sessions go on with them; lanes, which hold nothing of their clients, are replaced. */
  change(change: TargetChange): void {
    this.#change = change;
    for (const session of [...this.#sessions.values()]) this.#changeSession(session, change);
    this.#retireLanes();
  }

  /** Takes nothing new. */
  retire(): void {
    for (const session of [...this.#sessions.values()]) session.retire();
    this.#retireLanes();
  }

  /** How many of those who hold servers are still at work. */
  get busy(): number {
    let busy = 0;
    for (const tenant of this.#tenants.keys()) if (!tenant.isIdle) busy += 1;
    return busy;
  }

  namesOf(id: string | undefined): Names | undefined {
    return id === undefined ? undefined : this.#sessions.get(id)?.names;
  }

  /** The gateway stops: streams that wait for something to happen end now, calls in flight go on. */
  drain(): void {
    for (const session of this.#sessions.values()) session.drain();
    this.#beating.each((one) => one.drain?.());
  }

  /** Ends all sessions. Resolves when their servers are gone. */
  async close(): Promise<void> {
    for (const tenant of [...this.#tenants.keys()]) tenant.end("the gateway closed it", false);
    this.#pulse?.cancel();
    this.#sweeper?.cancel();
    this.#stopReclaiming();
    await Promise.all(this.#closing);
  }

  #changeSession(session: Session, change: TargetChange): void {
    for (const upstream of session.change(change)) this.#retirement.add(upstream);
  }

  #retireLanes(): void {
    const lanes = new Set(this.#lanes.values());
    this.#lanes.clear();
    for (const lane of lanes) lane.retire();
    // Subscriptions would go on for ever; their clients subscribe again.
    this.#beating.each((one) => one.drain?.());
  }

  #add(origin: SessionOrigin, { owner }: SessionClient, account: MemoryAccount): Session {
    const session = new Session({ ...origin, account }, owner, this.#sessionEnv);
    this.#sessions.set(session.id, session);
    this.#settle(session, "mcp session", shownId(session), account);
    return session;
  }

  /** Returns how many sessions are shown like this; only a single one is ended. */
  endShown = (shown: string): number => endShown([...this.#sessions.values()], shown);

  /** Charges the session to its client. Throws `overloaded`. */
  #admit({ client, headerBytes }: SessionClient, chars: number): MemoryAccount {
    const { maxSessions, maxSessionsPerClient } = this.settings;
    const { memory } = this.#env;
    const isOwn = (tenant: UpstreamHolder): boolean => this.#clientOf(tenant) === client;
    const bytes = SESSION_BYTES + headerBytes + RETAINED_COPIES * chars;
    if (this.#countOf(client) >= maxSessionsPerClient && !this.#endIdle(isOwn))
      throw overloaded(`the limit of ${maxSessionsPerClient} MCP sessions per client is reached`);
    if (!memory.sessions.fitsShare(client, bytes) && !this.#endIdle(isOwn))
      throw overloaded("the memory for the MCP sessions of one client is used up");
    if (this.#tenants.size >= maxSessions && !this.makeRoom(undefined, client))
      throw overloaded(`the limit of ${maxSessions} MCP sessions is reached`);
    const account = new MemoryAccount(memory.sessions, client);
    if (account.tryGrow(bytes) || (memory.reclaimSessions() && account.tryGrow(bytes))) return account;
    throw overloaded("the memory for MCP sessions is used up");
  }

  #settle(tenant: UpstreamHolder, kind: string, name: string, account: MemoryAccount | undefined): void {
    const task = this.#env.task.start(kind, name, () => tenant.detail());
    this.#tenants.set(tenant, { task, account });
    if (account !== undefined) this.#counts.set(account.client, this.#countOf(account.client) + 1);
    this.#sweeper ??= this.#env.clock.every(SWEEP_MS, this.#sweep);
  }

  /** A session that is in use is told to the store now and then, and ends here if it was ended elsewhere. */
  #record(session: Session, nowMs: number): void {
    const { record } = session;
    if (record === undefined || !session.isOpen || nowMs - session.recordedMs < RECORD_EVERY_MS) return;
    if (session.isIdle && session.lastUsedMs <= session.recordedMs) return;
    session.recordedMs = nowMs;
    void this.#env.records
      .touch(record, session.isIdle ? nowMs - session.lastUsedMs : 0, session.peer.hasSettings)
      .then((isAlive) => {
        if (!isAlive) session.end("it was ended elsewhere");
      });
  }

  #ended(tenant: UpstreamHolder, reason: string): void {
    const held = this.#tenants.get(tenant);
    if (held === undefined) return;
    const { task, account } = held;
    this.#tenants.delete(tenant);
    if (account !== undefined) {
      account.close();
      countDown(this.#counts, account.client);
      if (tenant instanceof Lane) countDown(this.#laneCounts, account.client);
    }
    this.#env.logger.debug("MCP session ended", { reason });
    this.#waitFor(Promise.all(tenant.upstreams.map((upstream) => upstream.close())).finally(() => task.end()));
    if (this.#tenants.size > 0) return;
    this.#sweeper?.cancel();
    this.#sweeper = undefined;
  }

  /** The end of the store waits for it. */
  #waitFor(done: Promise<unknown>): void {
    const closing: Promise<unknown> = done.finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }

  readonly #beat = (): void => {
    if (this.#beating.size === 0) {
      this.#pulse?.cancel();
      this.#pulse = undefined;
      return;
    }
    const nowMs = this.#env.clock.monotonicMs();
    this.#beating.each((one) => one.beat(nowMs));
  };

  readonly #sweep = (): void => {
    const nowMs = this.#env.clock.monotonicMs();
    for (const tenant of this.#tenants.keys()) {
      tenant.sweep(nowMs);
      if (tenant.isIdle && nowMs - tenant.lastUsedMs > this.settings.sessionIdleTtlMs) {
        // Its record ends by itself, unless another replica has used it.
        tenant.end("it was idle", false);
      }
    }
    for (const session of this.#sessions.values()) this.#record(session, nowMs);
  };
}

function overloaded(message: string): GatewayError {
  return new GatewayError("overloaded", { message, headers: { "retry-after": RETRY_AFTER_SECONDS } });
}

function countDown(counts: Map<string, number>, client: string): void {
  const left = (counts.get(client) ?? 0) - 1;
  if (left > 0) counts.set(client, left);
  else counts.delete(client);
}
