/**
 * A table that is asked for names from outside: it has its own entries and nothing else. A plain object would also
 * answer to `constructor` and `__proto__`.
 */
export function lookupTable<Value>(entries: Readonly<Record<string, Value>>): Readonly<Record<string, Value>> {
  return Object.freeze(Object.assign(Object.create(null), entries));
}
