/**
 * Holds the sessions and client groups of one backend. The store limits their number and memory, ends idle ones, and
 * sends keep-alive events on their streams. It survives reloads.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import type { IdSource } from "../../base/ids.ts";
import { LinkedList } from "../../base/linked-list.ts";
import { MemoryAccount, type MemoryBudget } from "../../base/memory-budget.ts";
import type { Task } from "../../base/tasks.ts";
import { GatewayError } from "../../core/errors.ts";
import { shownPrincipal } from "../../core/principal.ts";
import type { Logger } from "../../record/log/logger.ts";
import { shortSessionId } from "../../record/trace/redact.ts";
import type { TargetChange } from "../aggregation/router.ts";
import type { ConnectionDetail } from "../server-side/server-state.ts";
import type { UpstreamDrain, UpstreamHolder } from "../server-side/upstream.ts";
import { ClientGroup } from "./client-group.ts";
import type { Heartbeat } from "./event-stream.ts";
import { Session, type SessionHost, type SessionOrigin } from "./session.ts";
import type { KnownSession, SessionRecords } from "./session-records.ts";

const BEAT_MS = 100;
const SWEEP_MS = 1_000;
/** The idle time before a session may be evicted for a limit. Memory shortage and `CROWDING` ignore it. */
const MIN_EVICTABLE_MS = 10_000;
/**
 * If a client has this many times the sessions of the client that needs a slot, its idle sessions may be evicted
 * without a minimum idle time.
 */
const CROWDING = 10;
/** The fraction of a client's idle sessions that each reclaim ends. */
const RECLAIMED_SHARE = 0.125;
const MAX_GROUPS_PER_CLIENT = 64;
/** The estimated memory of a session or group without the data that its client sent. */
const SESSION_BYTES = 8 * 1024;
/** The client's data is retained several times, as strings and as objects. */
const RETAINED_COPIES = 4;
const RETRY_AFTER_SECONDS = "5";
const RECORD_EVERY_MS = 30_000;

export interface StoreSettings {
  readonly maxSessions: number;
  readonly maxSessionsPerClient: number;
  readonly sessionIdleTtlMs: number;
  /** The value 0 disables parking. */
  readonly parkAfterMs: number;
}

export interface SessionStoreOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly ids: IdSource;
  readonly task: Task;
  readonly drain: UpstreamDrain;
  readonly records: SessionRecords;
  readonly memory: MemoryBudget;
}

export interface SessionClient {
  readonly client: string;
  /** The owner is undefined if no policy identified the client. */
  readonly owner: string | undefined;
  /** The subject that request records show. */
  readonly user: string | undefined;
  readonly headerBytes: number;
}

interface Held {
  readonly task: Task;
  /** Shared servers have no account, because they serve all clients. */
  readonly account: MemoryAccount | undefined;
}

export class SessionStore implements SessionHost {
  settings: StoreSettings;
  readonly #env: SessionStoreOptions;
  readonly #sessions = new Map<string, Session>();
  readonly #groups = new Map<string, ClientGroup>();
  readonly #holders = new Map<UpstreamHolder, Held>();
  readonly #counts = new Map<string, number>();
  readonly #groupCounts = new Map<string, number>();
  readonly #stopReclaiming: () => void;
  readonly #heartbeats = new LinkedList<Heartbeat>();
  #heartbeatTimer: Timer | undefined = undefined;
  #sweeper: Timer | undefined = undefined;
  /** Keeps the latest change for sessions that were opening when it was applied. */
  #change: TargetChange | undefined = undefined;
  readonly #drain: UpstreamDrain;
  readonly #closing = new Set<Promise<unknown>>();

  constructor(settings: StoreSettings, env: SessionStoreOptions) {
    this.settings = settings;
    this.#env = env;
    this.#drain = env.drain;
    this.#stopReclaiming = env.memory.onShortage("sessions", { reclaim: (largest) => this.#reclaim(largest) });
  }

  get nowMs(): number {
    return this.#env.clock.monotonicMs();
  }

  get records(): SessionRecords {
    return this.#env.records;
  }

  get parkAfterMs(): number {
    return this.settings.parkAfterMs;
  }

  get size(): number {
    return this.#holders.size;
  }

  /**
   * Creates a session that is not open yet. Without `params`, other processes cannot resume it. Throws `overloaded` if
   * the limits do not allow it.
   */
  create(from: SessionClient, params?: string): Session {
    const account = this.#admit(from, params?.length ?? 0);
    const name = this.#env.ids.hex(16);
    return this.#add(
      params === undefined ? { id: name } : this.#env.records.issue(name, params, from.owner),
      from,
      account,
    );
  }

  /** Creates a session from its record. It is not open yet. Throws `overloaded` if the limits do not allow it. */
  adopt(id: string, { record, params }: KnownSession, from: SessionClient): Session {
    const account = this.#admit(from, params.length);
    return this.#add({ id, record, eventsBefore: this.#env.clock.now() }, from, account);
  }

  group(key: string): ClientGroup | undefined {
    return this.#groups.get(key);
  }

  /**
   * Creates a group that is not open yet. `identityChars` is the size of the retained client identity. Throws
   * `overloaded` if the limits do not allow it.
   */
  createGroup(key: string, owner: string, from: SessionClient, identityChars: number): ClientGroup {
    const { client } = from;
    const isCrowded = (this.#groupCounts.get(client) ?? 0) >= MAX_GROUPS_PER_CLIENT;
    if (isCrowded && !this.#endIdle((holder) => holder instanceof ClientGroup && this.#clientOf(holder) === client))
      throw overloaded(`the limit of ${MAX_GROUPS_PER_CLIENT} client names and capabilities per client is reached`);
    const account = this.#admit(from, identityChars);
    const group = new ClientGroup(owner, client, {
      nowMs: () => this.#env.clock.monotonicMs(),
      ended: (ended, reason) => {
        for (const [one, held] of this.#groups) if (held === ended) this.#groups.delete(one);
        this.#ended(ended, reason);
      },
    });
    this.#groups.set(key, group);
    this.#groupCounts.set(client, (this.#groupCounts.get(client) ?? 0) + 1);
    this.#settle(group, "mcp group", shownPrincipal(owner), account);
    return group;
  }

  addGroupKey(group: ClientGroup, key: string): void {
    if (!this.#groups.has(key)) this.#groups.set(key, group);
  }

  addShared(server: UpstreamHolder, name: string): void {
    this.#settle(server, "mcp shared server", name, undefined);
  }

  sharedEnded(server: UpstreamHolder, reason: string): void {
    this.#ended(server, reason);
  }

  startHeartbeat(one: Heartbeat): void {
    this.#heartbeats.add(one);
    this.#heartbeatTimer ??= this.#env.clock.every(BEAT_MS, this.#beat);
  }

  stopHeartbeat(one: Heartbeat): void {
    this.#heartbeats.remove(one);
  }

  find(id: string, owner: string | undefined): Session | undefined {
    const session = this.#sessions.get(id);
    return session?.isOpen === true && session.owner === owner ? session : undefined;
  }

  /** Finds the owner's session if its general stream is connected. The session may not be initialized yet. */
  findStream(id: string, owner: string | undefined): Session | undefined {
    const session = this.#sessions.get(id);
    return session !== undefined && session.owner === owner && session.general.isConnected ? session : undefined;
  }

  /**
   * Evicts an idle holder that `mayGo` permits, preferably of the client with the most sessions. `client` needs the
   * slot. Returns false if none can be evicted.
   */
  makeRoom(mayGo: (holder: UpstreamHolder) => boolean = () => true, client?: string): boolean {
    const nowMs = this.#env.clock.monotonicMs();
    const crowdedFrom = client === undefined ? Number.POSITIVE_INFINITY : CROWDING * (this.#countOf(client) + 1);
    let chosen: UpstreamHolder | undefined;
    let most = 0;
    for (const [holder, { account }] of this.#holders) {
      const count = this.#countOf(account?.client);
      if (count < most || (chosen !== undefined && count === most && holder.lastUsedMs >= chosen.lastUsedMs)) continue;
      if (!holder.isIdle || !mayGo(holder)) continue;
      if (count < crowdedFrom && nowMs - holder.lastUsedMs < MIN_EVICTABLE_MS) continue;
      chosen = holder;
      most = count;
    }
    chosen?.end("the session limit was reached", false);
    return chosen !== undefined;
  }

  makeRoomWithin(client: string, mayGo: (holder: UpstreamHolder) => boolean): boolean {
    return this.#endIdle((holder) => this.#clientOf(holder) === client && mayGo(holder));
  }

  /**
   * Ends the least recently used idle holder that `mayGo` permits, if it has been idle long enough. Returns false
   * otherwise.
   */
  #endIdle(mayGo: (holder: UpstreamHolder) => boolean): boolean {
    let oldest: UpstreamHolder | undefined;
    for (const holder of this.#holders.keys())
      if ((oldest === undefined || holder.lastUsedMs < oldest.lastUsedMs) && holder.isIdle && mayGo(holder))
        oldest = holder;
    if (oldest === undefined || this.#env.clock.monotonicMs() - oldest.lastUsedMs < MIN_EVICTABLE_MS) return false;
    oldest.end("its client reached a limit", false);
    return true;
  }

  /**
   * Ends some idle sessions of `largest`, or of the client with the most sessions in this store if `largest` has none
   * here.
   */
  #reclaim(largest: string | undefined): boolean {
    const isHere = largest !== undefined && this.#countOf(largest) > 0;
    const client = isHere ? largest : this.#largestClient();
    const idle = [...this.#holders.keys()].filter((holder) => holder.isIdle && this.#clientOf(holder) === client);
    const count = Math.ceil(idle.length * RECLAIMED_SHARE);
    idle.sort((a, b) => a.lastUsedMs - b.lastUsedMs);
    for (const holder of idle.slice(0, count)) holder.end("memory is short", false);
    return count > 0;
  }

  #largestClient(): string | undefined {
    let largest: string | undefined;
    for (const client of this.#counts.keys())
      if (largest === undefined || this.#countOf(client) > this.#countOf(largest)) largest = client;
    return largest;
  }

  #clientOf(holder: UpstreamHolder): string | undefined {
    return this.#holders.get(holder)?.account?.client;
  }

  #countOf(client: string | undefined): number {
    return client === undefined ? 0 : (this.#counts.get(client) ?? 0);
  }

  /** Applies new targets to the sessions. Groups are retired, and later requests create new ones. */
  change(change: TargetChange): void {
    this.#change = change;
    for (const session of [...this.#sessions.values()]) this.#changeSession(session, change);
    this.#retireGroups(true);
  }

  retire(): void {
    for (const session of [...this.#sessions.values()]) session.retire();
    // No retry can arrive at a backend that was removed.
    this.#retireGroups(false);
  }

  get busy(): number {
    let busy = 0;
    for (const holder of this.#holders.keys()) if (!holder.isIdle) busy += 1;
    return busy;
  }

  connectionDetails(): readonly ConnectionDetail[] {
    return [...this.#holders.keys()].flatMap(({ upstreams }) => upstreams.map((upstream) => upstream.detail()));
  }

  /** Ends subscriptions and, in sessions without pending calls, the general streams. Calls in flight continue. */
  drain(): void {
    for (const session of this.#sessions.values()) session.drain();
    this.#heartbeats.each((one) => one.drain?.());
  }

  /** Ends all holders. Resolves when their servers have stopped. */
  async close(): Promise<void> {
    for (const holder of [...this.#holders.keys()]) holder.end("the gateway closed it", false);
    this.#heartbeatTimer?.cancel();
    this.#sweeper?.cancel();
    this.#stopReclaiming();
    await Promise.all(this.#closing);
  }

  #changeSession(session: Session, change: TargetChange): void {
    for (const upstream of session.change(change)) this.#drain.add(upstream);
  }

  #retireGroups(keepsSuspended: boolean): void {
    const groups = new Set(this.#groups.values());
    this.#groups.clear();
    for (const group of groups) group.retire(keepsSuspended);
    // Ends subscriptions, which would otherwise keep their retired groups open.
    this.#heartbeats.each((one) => one.drain?.());
  }

  #add(origin: SessionOrigin, from: SessionClient, account: MemoryAccount): Session {
    const session = new Session(origin, from, account, this);
    this.#sessions.set(session.id, session);
    this.#settle(session, "mcp session", shortSessionId(session.id), account);
    return session;
  }

  endShown(shown: string): number {
    const found = [...this.#sessions.values()].filter((session) => shortSessionId(session.id) === shown);
    if (found.length === 1) found[0]?.end("an operator ended it");
    return found.length;
  }

  /** Charges the session to its client. Throws `overloaded` if the limits do not allow it. */
  #admit({ client, headerBytes }: SessionClient, chars: number): MemoryAccount {
    const { maxSessions, maxSessionsPerClient } = this.settings;
    const { memory } = this.#env;
    const isOwn = (holder: UpstreamHolder): boolean => this.#clientOf(holder) === client;
    const bytes = SESSION_BYTES + headerBytes + RETAINED_COPIES * chars;
    if (this.#countOf(client) >= maxSessionsPerClient && !this.#endIdle(isOwn))
      throw overloaded(`the limit of ${maxSessionsPerClient} MCP sessions per client is reached`);
    if (!memory.sessions.fitsShare(client, bytes) && !this.#endIdle(isOwn))
      throw overloaded("the memory limit for the MCP sessions of one client is reached");
    if (this.#holders.size >= maxSessions && !this.makeRoom(undefined, client))
      throw overloaded(`the limit of ${maxSessions} MCP sessions is reached`);
    const account = new MemoryAccount(memory.sessions, client);
    if (account.tryGrow(bytes) || (memory.reclaimSessions() && account.tryGrow(bytes))) return account;
    throw overloaded("the memory limit for MCP sessions is reached");
  }

  #settle(holder: UpstreamHolder, kind: string, name: string, account: MemoryAccount | undefined): void {
    const task = this.#env.task.start(kind, name, () => holder.detail());
    this.#holders.set(holder, { task, account });
    if (account !== undefined) this.#counts.set(account.client, this.#countOf(account.client) + 1);
    this.#sweeper ??= this.#env.clock.every(SWEEP_MS, this.#sweep);
  }

  /** Refreshes the record of a session in use, and ends the session if its record no longer exists. */
  #record(session: Session, nowMs: number): void {
    const { record } = session;
    if (record === undefined || !session.isOpen || nowMs - session.recordedMs < RECORD_EVERY_MS) return;
    if (session.isIdle && session.lastUsedMs <= session.recordedMs) return;
    session.recordedMs = nowMs;
    void this.#env.records
      .touch(record, session.isIdle ? nowMs - session.lastUsedMs : 0, session.peers.hasSettings)
      .then((isAlive) => {
        if (!isAlive) session.end("it was ended elsewhere");
      });
  }

  #ended(holder: UpstreamHolder, reason: string): void {
    const held = this.#holders.get(holder);
    if (held === undefined) return;
    const { task, account } = held;
    this.#holders.delete(holder);
    if (account !== undefined) {
      account.close();
      countDown(this.#counts, account.client);
      if (holder instanceof ClientGroup) countDown(this.#groupCounts, account.client);
    }
    this.#env.logger.debug("MCP session ended", { reason });
    this.waitFor(Promise.all(holder.upstreams.map((upstream) => upstream.close())).finally(() => task.end()));
    if (this.#holders.size > 0) return;
    this.#sweeper?.cancel();
    this.#sweeper = undefined;
  }

  waitFor(done: Promise<unknown>): void {
    const closing: Promise<unknown> = done.finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }

  sessionOpened(session: Session): void {
    if (session.record) this.records.begin(session.record);
    // The configuration may have changed while the session was opening.
    if (this.#change) this.#changeSession(session, this.#change);
  }

  sessionEnded(session: Session, reason: string, isForGood: boolean): void {
    this.#sessions.delete(session.id);
    if (session.record && isForGood) this.records.end(session.record);
    this.#ended(session, reason);
  }

  readonly #beat = (): void => {
    if (this.#heartbeats.size === 0) {
      this.#heartbeatTimer?.cancel();
      this.#heartbeatTimer = undefined;
      return;
    }
    const nowMs = this.#env.clock.monotonicMs();
    this.#heartbeats.each((one) => one.beat(nowMs));
  };

  readonly #sweep = (): void => {
    const nowMs = this.#env.clock.monotonicMs();
    for (const holder of this.#holders.keys()) {
      holder.sweep(nowMs);
      if (holder.isIdle && nowMs - holder.lastUsedMs > this.settings.sessionIdleTtlMs) {
        // The record is not deleted, because another replica may use the session.
        holder.end("it was idle", false);
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
