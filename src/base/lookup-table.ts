/**
 * Creates a table for lookups of external names without inherited entries. A plain object would also find
 * `constructor` and `__proto__`.
 */
export function lookupTable<Value>(entries: Readonly<Record<string, Value>>): Readonly<Record<string, Value>> {
  return Object.freeze(Object.assign(Object.create(null), entries));
}
