/**
 * Defines the store for data such as sessions, budgets, and tokens of users. An operation rejects with
 * StoreUnavailable while the store cannot be used, and the caller decides whether to fail open or fail closed.
 */

import type { Owner } from "../base/owner.ts";
import { peerInput } from "../base/peer-inputs.ts";
import type { Hold } from "./holds.ts";

export interface Store {
  readonly kind: StoreKind;
  /** Sends messages to other processes, if the store supports it. */
  readonly bus?: Bus | undefined;
  /** True if other processes use the same data: replicas (Redis), or the other process of an in-place upgrade. */
  readonly isShared?: boolean;
  get(key: string): Promise<string | undefined>;
  set(key: string, value: string, options?: SetOptions): Promise<void>;
  /** Resolves with whether the key existed. */
  delete(key: string): Promise<boolean>;
  /**
   * Sets the value only if the current one equals `expected`, where undefined means that the key does not exist.
   * Resolves with whether the value was set.
   */
  replace(key: string, expected: string | undefined, value: string, options?: SetOptions): Promise<boolean>;
  /**
   * Adds an integer to a counter atomically across replicas. A positive amount that would exceed `limit` is rejected
   * and changes nothing. A negative amount is a refund and stops at 0. `add(key, 0)` reads the counter. The call that
   * creates the counter sets its expiry. If the error has `isUncertain`, the amount may have been counted.
   */
  add(key: string, amount: number, options?: AddOptions): Promise<AddResult>;
  /**
   * Resolves with one page of the entries whose keys have this prefix, in no particular order. Pass the `cursor` of a
   * page to get the next one.
   */
  list(prefix: string, cursor?: string): Promise<Page>;
  /** Resolves when completed changes survive a power failure. In memory and Redis stores, it resolves immediately. */
  sync(): Promise<void>;
  health(): StoreHealth;
  close(): Promise<void>;
  /** Estimates the memory that entries occupy in this process. Redis and remote stores omit it. */
  readonly bytes?: number;
  /** Removes cached entries, which can be fetched again. Returns whether there were any. */
  dropCache?(): boolean;
  /** Returns the entries of an in-memory store, to hand them over. Other stores are closed instead. */
  content?(): readonly Change[] | undefined;
}

export const CACHE_NAMESPACE = "llm-cache";
/** The memory and folder stores evict the least recently used entries of these namespaces. */
const CACHE_NAMESPACES = [CACHE_NAMESPACE, "mcp-definitions"];
/** Limits and credentials depend on these entries, so they are never evicted and are rejected last. */
const PROTECTED_NAMESPACES = ["budgets", "holds", "api-keys", "keys"];
/** Sessions and statistics may be dropped if a store is reopened with a smaller memory limit. */
const EXPENDABLE_NAMESPACES = ["mcp-sessions", "mcp-settings", "mcp-tasks", "mcp-answers", "mcp-replicas", "history"];

export type EntryKind = "cache" | "protected" | "expendable" | "other";

export function entryKind(key: string): EntryKind {
  const namespace = key.slice(0, key.indexOf("/"));
  if (CACHE_NAMESPACES.includes(namespace)) return "cache";
  if (PROTECTED_NAMESPACES.includes(namespace)) return "protected";
  return EXPENDABLE_NAMESPACES.includes(namespace) ? "expendable" : "other";
}

export type StoreKind = "memory" | "folder" | "redis";

/** A message is delivered immediately or not at all. */
export interface Bus {
  publish(channel: string, text: string): Promise<number>;
  /** Does not fail. While the connection is down, no messages arrive. */
  listen(channel: string, receive: (text: string) => void): BusChannel;
  /** False if no other process is connected. Undefined if that is unknown. */
  readonly hasPeers?: boolean;
}

export interface BusChannel {
  /** Resolves when the subscription is active, or after a timeout. */
  readonly ready: Promise<void>;
  close(): void;
}

export interface SetOptions {
  /** If it is undefined, the entry does not expire. */
  readonly expiresAtMs?: number;
}

export interface AddOptions extends SetOptions {
  readonly limit?: number | undefined;
  /** With a hold, the amount must not be negative, and the limit applies to the amount and to what is taken. */
  readonly hold?: Hold;
}

export interface AddResult {
  /** False if the limit rejected the amount. */
  readonly isAdded: boolean;
  /** The total is unchanged if the amount was rejected. */
  readonly total: number;
}

export interface Page {
  readonly entries: readonly Entry[];
  /** The last page has no cursor. */
  readonly cursor?: string;
}

/** Sets a key, or removes it if there is no value. An entry with an expiry of 0 does not expire. */
export type Change = readonly [key: string, value: string, expiresAtMs: number] | readonly [key: string];

export interface Entry {
  readonly key: string;
  readonly value: string;
}

export interface StoreHealth {
  readonly state: "up" | "degraded";
  readonly reason?: string;
}

export class StoreUnavailable extends Error {
  /**
   * True if the operation may have been applied or may be applied later, so that a repeated addition could count twice.
   */
  readonly isUncertain: boolean;

  constructor(reason: string, options: ErrorOptions & { readonly isUncertain?: boolean } = {}) {
    super(`store unavailable: ${reason}`, options);
    this.name = "StoreUnavailable";
    this.isUncertain = options.isUncertain ?? false;
  }
}

export const MAX_KEY_BYTES = 1024;
export const MAX_VALUE_BYTES = peerInput("redis/entry").maxBytes;
export const MAX_MESSAGE_BYTES = peerInput("redis/message").maxBytes;
export const PAGE_SIZE = 500;

/** Throws a RangeError instead of StoreUnavailable, because an oversized key or value is a defect of the caller. */
export function checkEntry(key: string, value = ""): void {
  if (key === "" || Buffer.byteLength(key) > MAX_KEY_BYTES)
    throw new RangeError(`a key of the store has 1 to ${MAX_KEY_BYTES} bytes`);
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES)
    throw new RangeError(`a value of the store has at most ${MAX_VALUE_BYTES} bytes`);
}

export function parseCounter(value: string | undefined): number {
  const total = Number(value ?? 0);
  // `Number` also accepts spaces and other formats, but the script in Redis accepts digits only.
  if (!/^\d+$/.test(value ?? "0") || !Number.isSafeInteger(total))
    throw new TypeError("the value of this key is not a counter");
  return total;
}

export function checkAmount(amount: number): void {
  if (!Number.isSafeInteger(amount)) throw new RangeError("the amount must be an integer");
}

/**
 * Returns a view of the keys that start with `name/` and the owner's prefix, without them. `name` must not contain a
 * slash. If `owner` is undefined, the view contains the keys of all owners.
 */
export function storeNamespace(store: Store, name: string, owner: Owner | undefined): Store {
  const prefix = `${name}/${owner?.prefix ?? ""}`;
  // Owners' prefixes begin with this character, so keys of the standalone configuration must not.
  const isForeign = (key: string): boolean => owner?.isStandalone === true && key.startsWith("@");
  const inner = (key: string): string => {
    if (isForeign(key)) throw new RangeError("a key of the standalone configuration must not begin with @");
    return prefix + key;
  };
  return {
    get kind() {
      return store.kind;
    },
    get isShared() {
      return store.isShared === true;
    },
    get bus() {
      const { bus } = store;
      return (
        bus && {
          publish: (channel: string, text: string) => bus.publish(inner(channel), text),
          listen: (channel: string, receive: (text: string) => void) => bus.listen(inner(channel), receive),
          ...(bus.hasPeers === undefined ? {} : { hasPeers: bus.hasPeers }),
        }
      );
    },
    get: (key) => store.get(inner(key)),
    set: (key, value, options) => store.set(inner(key), value, options),
    delete: (key) => store.delete(inner(key)),
    replace: (key, expected, value, options) => store.replace(inner(key), expected, value, options),
    add: (key, amount, options) => store.add(inner(key), amount, options),
    async list(keyPrefix, cursor) {
      const page = await store.list(inner(keyPrefix), cursor);
      const entries = page.entries.map(({ key, value }) => ({ key: key.slice(prefix.length), value }));
      return { ...page, entries: entries.filter(({ key }) => !isForeign(key)) };
    },
    sync: () => store.sync(),
    health: () => store.health(),
    // The owner of the underlying store closes it.
    close: async () => undefined,
  };
}

const reject = (): Promise<never> => Promise.reject(new StoreUnavailable("this configuration does not serve"));

/** Rejects reads and writes. */
export const noStore: Store = {
  kind: "memory",
  get: reject,
  set: reject,
  delete: reject,
  replace: reject,
  add: reject,
  list: reject,
  sync: reject,
  health: () => ({ state: "degraded", reason: "not open" }),
  close: async () => undefined,
};
