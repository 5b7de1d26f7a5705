/**
 * Where data lives that must outlive a process or be the same for all replicas: sessions, budgets, tokens of users.
 * One interface for memory, a folder and Redis. Every operation ends within a time limit: it resolves, or rejects with
 * StoreUnavailable, and the caller decides what that means (fail open or fail closed).
 */

export interface Store {
  readonly kind: StoreKind;
  /** Messages to other replicas; undefined where the store is not shared. */
  readonly bus?: Bus | undefined;
  get(key: string): Promise<string | undefined>;
  set(key: string, value: string, options?: SetOptions): Promise<void>;
  /** Whether there was such a key. */
  delete(key: string): Promise<boolean>;
  /** Sets the value only while the current one is `expected` (undefined: no such key). Returns whether it did. */
  replace(key: string, expected: string | undefined, value: string, options?: SetOptions): Promise<boolean>;
  /**
   * Adds to a counter in one step, exact across replicas. With `limit`, a positive amount that would exceed it changes
   * nothing and is refused. A negative amount gives back and stops at 0. `add(key, 0)` reads. The expiry is that of the
   * call that creates the counter. Amounts are integers: count money in millionths. If it rejects, the amount may have
   * been counted.
   */
  add(key: string, amount: number, options?: AddOptions): Promise<AddResult>;
  /** One page of the keys that begin with `prefix`, in no particular order; `cursor` of a page asks for the next one. */
  list(prefix: string, cursor?: string): Promise<Page>;
  /** Resolves when everything set so far survives a power cut, as far as the kind of store can promise that. */
  sync(): Promise<void>;
  health(): StoreHealth;
  close(): Promise<void>;
  /** What the entries take in this process; absent where they are elsewhere. */
  readonly bytes?: number;
  /** Removes cached responses, of which the source can be asked again. Whether there were any. Absent as above. */
  dropCache?(): boolean;
}

/** The namespace of responses that are only cached: a store in memory evicts those that were used longest ago. */
export const CACHE_NAMESPACE = "llm-cache";
/** What limits and credentials depend on: a store in memory never evicts it, and rejects it last. */
const PROTECTED_NAMESPACES = ["budgets", "api-keys", "keys"];
/** Sessions and statistics: a store that is opened with less memory than it had before may start without some of them. */
const EXPENDABLE_NAMESPACES = ["mcp-sessions", "mcp-settings", "mcp-tasks", "mcp-answers", "mcp-replicas", "history"];

export type EntryKind = "cache" | "protected" | "expendable" | "other";

/** How a store in memory treats an entry when it is full. */
export function entryKind(key: string): EntryKind {
  const namespace = key.slice(0, key.indexOf("/"));
  if (namespace === CACHE_NAMESPACE) return "cache";
  if (PROTECTED_NAMESPACES.includes(namespace)) return "protected";
  return EXPENDABLE_NAMESPACES.includes(namespace) ? "expendable" : "other";
}

export type StoreKind = "memory" | "folder" | "redis";

/** Messages that are heard at once or never. */
export interface Bus {
  /** Resolves with how many listen to the channel. Rejects with StoreUnavailable. */
  publish(channel: string, text: string): Promise<number>;
  /** Never fails: while Redis is away nothing is heard. */
  listen(channel: string, heard: (text: string) => void): BusChannel;
}

export interface BusChannel {
  /** From then on everything is heard, while Redis is there. */
  readonly ready: Promise<void>;
  close(): void;
}

export interface SetOptions {
  /** Wall clock, milliseconds since the epoch. Absent: never. */
  readonly expiresAtMs?: number;
}

export interface AddOptions extends SetOptions {
  readonly limit?: number;
}

export interface AddResult {
  /** False: the limit refused it. */
  readonly isAdded: boolean;
  /** After the addition, or as it is if that was refused. */
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
  /** Why it is degraded. */
  readonly reason?: string;
}

/** The store cannot be asked now, or did not answer in time. */
export class StoreUnavailable extends Error {
  /** The operation may have been done, or will be: repeating an addition could count it twice. */
  readonly isUncertain: boolean;

  constructor(reason: string, options: ErrorOptions & { readonly isUncertain?: boolean } = {}) {
    super(`store unavailable: ${reason}`, options);
    this.name = "StoreUnavailable";
    this.isUncertain = options.isUncertain ?? false;
  }
}

/** Keys carry names of users and servers, not documents. */
export const MAX_KEY_BYTES = 1024;
/** An encrypted token or the parameters of a session are far smaller. */
export const MAX_VALUE_BYTES = 1024 * 1024;
/** Of the bus: a large answer of a server fits. */
export const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;
/** How many keys a page of `list` asks for. */
export const PAGE_SIZE = 500;

/** Throws RangeError: a key or value that no kind of store takes is a mistake of the caller. */
export function checkEntry(key: string, value = ""): void {
  if (key === "" || Buffer.byteLength(key) > MAX_KEY_BYTES)
    throw new RangeError(`a key of the store has 1 to ${MAX_KEY_BYTES} bytes`);
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES)
    throw new RangeError(`a value of the store has at most ${MAX_VALUE_BYTES} bytes`);
}

/** The counter's value; throws TypeError if the key holds something else. */
export function counterOf(value: string | undefined): number {
  const total = Number(value ?? 0);
  // JavaScript also takes spaces and other notations for numbers; the script in Redis takes digits only.
  if (!/^\d+$/.test(value ?? "0") || !Number.isSafeInteger(total))
    throw new TypeError("the value of this key is not a counter");
  return total;
}

export function checkAmount(amount: number): void {
  if (!Number.isSafeInteger(amount)) throw new RangeError("the amount must be an integer");
}

/** A part of a store that sees only its own keys. Names contain no slash. */
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
          listen: (channel: string, heard: (text: string) => void) => bus.listen(inner(channel), heard),
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
    // The whole store is closed by whoever opened it.
    close: async () => undefined,
  };
}

const refuse = (): Promise<never> => Promise.reject(new StoreUnavailable("this configuration does not serve"));

/** For configurations that are only checked: whatever is asked of it is refused. */
export const noStore: Store = {
  kind: "memory",
  get: refuse,
  set: refuse,
  delete: refuse,
  replace: refuse,
  add: refuse,
  list: refuse,
  sync: refuse,
  health: () => ({ state: "degraded", reason: "not open" }),
  close: async () => undefined,
};
