/**
 * The members of parsed JSON, which may have a member `__proto__`. Copy members with `putMember`, because an assignment
 * to `__proto__` replaces the prototype.
 */

export type Members = Readonly<Record<string, unknown>>;

export function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function putMember(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name === "__proto__")
    Object.defineProperty(object, name, { value, enumerable: true, writable: true, configurable: true });
  else object[name] = value;
}

export type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Removes undefined members, which are not the same as absent ones in JSON schemas and in types with optional members. */
export function defined<T extends object>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<T>;
}
