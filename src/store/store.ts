/**
 * Holds data that must outlive a process or be shared by all replicas: sessions, budgets, tokens of users. One
 * interface for memory, a folder and Redis. Every operation settles within a time limit: it resolves, or rejects with
 * StoreUnavailable, and the caller decides whether to fail open or fail closed.
 */

export interface Store {
  readonly kind: StoreKind;
  /** Messages to other replicas; undefined if the store is not shared. */
  readonly bus?: Bus | undefined;
  get(key: string): Promise<string | undefined>;
  set(key: string, value: string, options?: SetOptions): Promise<void>;
  /** Returns whether the key existed. */
  delete(key: string): Promise<boolean>;
  /**
   * Sets the value only if the current one is `expected` (undefined: the key does not exist). Returns whether it was
   * set.
   */
  replace(key: string, expected: string | undefined, value: string, options?: SetOptions): Promise<boolean>;
  /**
   * Adds to a counter atomically, exact across replicas. With `limit`, a positive amount that would exceed the limit is
   * rejected and changes nothing. A negative amount is a refund and stops at 0. `add(key, 0)` reads the counter. The
   * call that creates the counter sets its expiry. Amounts are integers: count money in millionths. If the promise
   * rejects, the amount may have been counted.
   */
  add(key: string, amount: number, options?: AddOptions): Promise<AddResult>;
  /**
   * Returns one page of the keys with this prefix, in no particular order. Pass the `cursor` of a page to get the next
   * one.
   */
  list(prefix: string, cursor?: string): Promise<Page>;
  /** Resolves when everything set so far survives a power failure, as far as this kind of store can guarantee it. */
  sync(): Promise<void>;
  health(): StoreHealth;
  close(): Promise<void>;
  /** The memory of the entries in this process; absent if they are stored elsewhere. */
  readonly bytes?: number;
  /** Removes cached responses, which can be fetched again. Returns whether there were any. Absent like `bytes`. */
  dropCache?(): boolean;
}

/** The namespace of cached responses. A store in memory evicts the least recently used ones. */
export const CACHE_NAMESPACE = "llm-cache";
/** Limits and credentials depend on these: a store in memory never evicts them, and rejects them last. */
const PROTECTED_NAMESPACES = ["budgets", "api-keys", "keys"];
/** Sessions and statistics. A store that is opened with less memory than before may start without some of them. */
const EXPENDABLE_NAMESPACES = ["mcp-sessions", "mcp-settings", "mcp-tasks", "mcp-answers", "mcp-replicas", "history"];

export type EntryKind = "cache" | "protected" | "expendable" | "other";

/** Returns how a store in memory treats the entry when it is full. */
export function entryKind(key: string): EntryKind {
  const namespace = key.slice(0, key.indexOf("/"));
  if (namespace === CACHE_NAMESPACE) return "cache";
  if (PROTECTED_NAMESPACES.includes(namespace)) return "protected";
  return EXPENDABLE_NAMESPACES.includes(namespace) ? "expendable" : "other";
}

export type StoreKind = "memory" | "folder" | "redis";

/** Messages between replicas, delivered immediately or not at all. */
export interface Bus {
  /** Resolves with the number of listeners. Rejects with StoreUnavailable. */
  publish(channel: string, text: string): Promise<number>;
  /** Never fails. While Redis is unavailable, no messages arrive. */
  listen(channel: string, receive: (text: string) => void): BusChannel;
}

export interface BusChannel {
  /** Resolves when messages are received. While Redis is unavailable, messages are lost. */
  readonly ready: Promise<void>;
  close(): void;
}

export interface SetOptions {
  /** Wall clock, milliseconds since the epoch. Absent: the entry does not expire. */
  readonly expiresAtMs?: number;
}

export interface AddOptions extends SetOptions {
  readonly limit?: number;
}

export interface AddResult {
  /** False if the limit rejected the amount. */
  readonly isAdded: boolean;
  /** The total after the addition, or unchanged if it was rejected. */
  readonly total: number;
}

export interface Page {
  readonly entries: readonly Entry[];
  /** Absent on the last page. */
  readonly cursor?: string;
}

export interface Entry {
  readonly key: string;
  readonly value: string;
}

export interface StoreHealth {
  readonly state: "up" | "degraded";
  /** Why the store is degraded. */
  readonly reason?: string;
}

/** The store is unavailable or did not respond in time. */
export class StoreUnavailable extends Error {
  /** The operation may have been applied or may still be, so repeating an addition could count it twice. */
  readonly isUncertain: boolean;

  constructor(reason: string, options: ErrorOptions & { readonly isUncertain?: boolean } = {}) {
    super(`store unavailable: ${reason}`, options);
    this.name = "StoreUnavailable";
    this.isUncertain = options.isUncertain ?? false;
  }
}

/** Keys contain names of users and servers, not documents. */
export const MAX_KEY_BYTES = 1024;
/** Large enough for an encrypted token or the parameters of a session. */
export const MAX_VALUE_BYTES = 1024 * 1024;
/** The limit of a bus message, which is enough for a large server response. */
export const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;
/** The number of keys per page of `list`. */
export const PAGE_SIZE = 500;

/** Throws RangeError, because a key or value that exceeds the limits of all stores is a defect of the caller. */
export function checkEntry(key: string, value = ""): void {
  if (key === "" || Buffer.byteLength(key) > MAX_KEY_BYTES)
    throw new RangeError(`a key of the store has 1 to ${MAX_KEY_BYTES} bytes`);
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES)
    throw new RangeError(`a value of the store has at most ${MAX_VALUE_BYTES} bytes`);
}

/** Returns the counter's value. Throws TypeError if the key holds something else. */
export function counterOf(value: string | undefined): number {
  const total = Number(value ?? 0);
  // JavaScript also accepts spaces and other number formats; the script in Redis accepts digits only.
  if (!/^\d+$/.test(value ?? "0") || !Number.isSafeInteger(total))
    throw new TypeError("the value of this key is not a counter");
  return total;
}

export function checkAmount(amount: number): void {
  if (!Number.isSafeInteger(amount)) throw new RangeError("the amount must be an integer");
}

/** A view of the store that is limited to its own keys. Names must not contain a slash. */
export function storeNamespace(store: Store, name: string): Store {
  const prefix = `${name}/`;
  const inner = (key: string): string => prefix + key;
  return {
    get kind() {
      return store.kind;
    },
    get bus() {
      const { bus } = store;
      return (
        bus && {
          publish: (channel: string, text: string) => bus.publish(inner(channel), text),
          listen: (channel: string, receive: (text: string) => void) => bus.listen(inner(channel), receive),
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
      return { ...page, entries: page.entries.map(({ key, value }) => ({ key: key.slice(prefix.length), value })) };
    },
    sync: () => store.sync(),
    health: () => store.health(),
    // The owner of the whole store closes it.
    close: async () => undefined,
  };
}

const reject = (): Promise<never> => Promise.reject(new StoreUnavailable("this configuration does not serve"));

/** For configurations that are only checked. All operations reject. */
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
