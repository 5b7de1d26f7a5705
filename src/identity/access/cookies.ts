/**
 * Reads and removes cookies of requests.
 */
import { constantRegExp } from "../../base/constant-regexp.ts";
import type { HeaderList } from "../../http/headers.ts";

/** All cookies of the gateway have this prefix, after `__Host-` if TLS is used. */
export const OWN_PREFIX = "gateway_";
export const OWN_COOKIE = constantRegExp(`^(?:__Host-)?${OWN_PREFIX}`);

/** Returns all values, because the order of cookies with the same name does not reveal their origin. */
export function cookieValues(headers: HeaderList, name: string): string[] {
  const start = `${name}=`;
  return cookiePairs(headers)
    .filter((pair) => pair.startsWith(start))
    .map((pair) => pair.slice(start.length));
}

export function removeCookies(headers: HeaderList, isRemoved: (name: string) => boolean): void {
  if (!headers.has("cookie")) return;
  const pairs = cookiePairs(headers);
  const others = pairs.filter((pair) => !isRemoved(pair.split("=", 1)[0] ?? ""));
  if (others.length === pairs.length) return;
  if (others.length === 0) headers.delete("cookie");
  else headers.set("cookie", others.join("; "));
}

export function cookiePairs(headers: HeaderList): string[] {
  // HTTP/2 clients may send one `cookie` line per cookie.
  return headers.getAll("cookie").flatMap((line) => line.split(";").map((pair) => pair.trim()));
}
