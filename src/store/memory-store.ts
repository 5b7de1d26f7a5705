/**
 * Implements the default store, which keeps its data only in memory.
 */
import type { Clock } from "../base/clock.ts";
import type { Change, Store } from "./store.ts";
import { Table, type TableLimits } from "./table.ts";

export function createMemoryStore(clock: Clock, content: Iterable<Change> = [], limits?: TableLimits): Store {
  const table = new Table(clock, undefined, limits);
  for (const change of content) table.load(change);
  return {
    kind: "memory",
    get: async (key) => table.get(key),
    set: async (key, value, options) => table.set(key, value, options?.expiresAtMs),
    delete: async (key) => table.delete(key),
    replace: async (key, expected, value, options) => table.replace(key, expected, value, options?.expiresAtMs),
    add: async (key, amount, options) => table.add(key, amount, options),
    list: async (prefix, cursor) => table.list(prefix, cursor),
    sync: async () => undefined,
    health: () => ({ state: "up" }),
    close: async () => table.close(),
    get bytes() {
      return table.bytes;
    },
    dropCache: () => table.dropCache(),
    content: () => [...table.changes()],
  };
}
