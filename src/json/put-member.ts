/**
 * Sets a member whose name comes from outside, as `JSON.parse` does it: any name is a name. A plain assignment to
 * `__proto__` would change the object's prototype and lose the member.
 */
export function putMember(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name === "__proto__")
    Object.defineProperty(object, name, { value, enumerable: true, writable: true, configurable: true });
  else object[name] = value;
}
