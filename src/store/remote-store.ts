/**
 * Implements a store over a channel to its owner. Worker threads use the store of the main thread, and during an
 * in-place upgrade the old process uses the store of the new process. An operation without a timely response rejects
 * with StoreUnavailable.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { entryKind, type Store, type StoreKind, StoreUnavailable } from "./store.ts";

const TIMEOUT_MS = 5_000;
const MAX_SENT_BYTES = 8 * 1024 * 1024;
const OPERATIONS = ["get", "set", "delete", "replace", "add", "list", "sync"] as const;
type Operation = (typeof OPERATIONS)[number];

export interface StoreRequest {
  readonly type: "store operation";
  readonly id: number;
  readonly operation: Operation;
  readonly args: readonly unknown[];
}

export interface StoreResponse {
  readonly type: "store result";
  readonly id: number;
  readonly value?: unknown;
  readonly error?: readonly [name: string, message: string, isUncertain?: boolean];
}

export interface RemoteStore extends Store {
  answered(answer: StoreResponse): void;
  /**
   * Keeps operations instead of sending them. Pending ones are kept too, or rejected as uncertain if the owner may have
   * applied them to data that remains.
   */
  hold(isUncertain: boolean): void;
  /** Runs the kept and all later operations on this store. */
  retake(store: Store): void;
  /** Rejects pending and later operations, because the channel is closed. */
  gone(reason: string): void;
}

interface Waiting {
  readonly request: StoreRequest;
  readonly bytes: number;
  resolve(value: never): void;
  reject(error: Error): void;
  timer: Timer;
}

export interface RemoteStoreState {
  /** Returns true if the owner is too low on memory to accept entries that are not protected. */
  isShort?(): boolean;
  /** Returns true while several processes use the store. */
  isShared?(): boolean;
}

export function createRemoteStore(
  kind: StoreKind,
  clock: Clock,
  send: (question: StoreRequest) => void,
  { isShort = () => false, isShared = () => false }: RemoteStoreState = {},
): RemoteStore {
  const waiting = new Map<number, Waiting>();
  let nextId = 1;
  let sentBytes = 0;
  let goneBecause: string | undefined;
  let deliver = send;

  function ask<Result>(operation: Operation, args: readonly unknown[], bytes = 0): Promise<Result> {
    if (goneBecause !== undefined) return Promise.reject(new StoreUnavailable(goneBecause));
    return new Promise((resolve, reject) => {
      const id = nextId++;
      const timer = clock.after(TIMEOUT_MS, () => {
        take(id);
        reject(new StoreUnavailable("the store did not answer in time", { isUncertain: true }));
      });
      const request: StoreRequest = { type: "store operation", id, operation, args };
      waiting.set(id, { request, bytes, resolve, reject, timer });
      sentBytes += bytes;
      deliver(request);
    });
  }

  function take(id: number): Waiting | undefined {
    const one = waiting.get(id);
    if (one === undefined) return undefined;
    waiting.delete(id);
    sentBytes -= one.bytes;
    return one;
  }

  function answered({ id, value, error }: StoreResponse): void {
    const one = take(id);
    if (one === undefined) return;
    one.timer.cancel();
    if (error === undefined) one.resolve(value as never);
    else one.reject(errorOf(...error));
  }

  function rejectAll(error: StoreUnavailable): void {
    for (const { reject, timer } of waiting.values()) {
      timer.cancel();
      reject(error);
    }
    waiting.clear();
    sentBytes = 0;
  }

  function write<Result>(operation: Operation, key: string, value: string, args: readonly unknown[]): Promise<Result> {
    const bytes = Buffer.byteLength(value);
    if (entryKind(key) !== "protected") {
      if (isShort()) return Promise.reject(new StoreUnavailable("memory is short"));
      if (sentBytes + bytes > MAX_SENT_BYTES)
        return Promise.reject(new StoreUnavailable("too many values wait for the store"));
    }
    return ask(operation, args, bytes);
  }

  return {
    kind,
    get isShared() {
      return isShared();
    },
    get: (key) => ask<string | null>("get", [key]).then((value) => value ?? undefined),
    set: (key, value, options) => write("set", key, value, [key, value, options]),
    delete: (key) => ask("delete", [key]),
    replace: (key, expected, value, options) => write("replace", key, value, [key, expected ?? null, value, options]),
    add: (key, amount, options) => ask("add", [key, amount, options]),
    list: (prefix, cursor) => ask("list", [prefix, cursor]),
    sync: () => ask("sync", []),
    health: () => (goneBecause === undefined ? { state: "up" } : { state: "degraded", reason: goneBecause }),
    close: async () => undefined,
    answered,
    hold(isUncertain) {
      deliver = () => undefined;
      if (isUncertain) rejectAll(new StoreUnavailable("its owner ended", { isUncertain: true }));
    },
    retake(store) {
      deliver = (request) => void serveStoreRequest(store, request).then(answered);
      for (const { request } of waiting.values()) deliver(request);
    },
    gone(reason) {
      goneBecause = reason;
      rejectAll(new StoreUnavailable(reason));
    },
  };
}

export async function serveStoreRequest(store: Store, { id, operation, args }: StoreRequest): Promise<StoreResponse> {
  try {
    if (!OPERATIONS.includes(operation)) throw new TypeError("unknown operation");
    // JSON has no undefined, so missing arguments arrive as null.
    const given = args.map((arg) => arg ?? undefined);
    const value = await (store[operation] as (...rest: readonly unknown[]) => Promise<unknown>)(...given);
    return { type: "store result", id, value };
  } catch (error) {
    const { name, message } = error as Error;
    const isUncertain = error instanceof StoreUnavailable && error.isUncertain;
    return { type: "store result", id, error: [name, message, isUncertain] };
  }
}

function errorOf(name: string, message: string, isUncertain = false): Error {
  if (name === "RangeError") return new RangeError(message);
  if (name === "TypeError") return new TypeError(message);
  return new StoreUnavailable(message.replace(/^store unavailable: /, ""), { isUncertain });
}
