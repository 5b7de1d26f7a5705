/**
 * Cookies of a sign-in with the browser: read, written with the flags that keep scripts and other sites away from them, and
 * taken out of what goes to backends.
 */
import type { HeaderList } from "../../lib/http/headers.ts";

export interface CookieOptions {
  readonly path: string;
  readonly maxAgeSeconds: number;
  /** False only where browsers reach the gateway without TLS. */
  readonly isSecure: boolean;
}

/**
 * `Lax` and not `Strict`: a browser that comes back from the identity provider must send it. A call that changes something
 * is checked by its origin as well.
 */
export function cookieLine(name: string, value: string, { path, maxAgeSeconds, isSecure }: CookieOptions): string {
  const flags = ["HttpOnly", "SameSite=Lax", ...(isSecure ? ["Secure"] : [])];
  return [`${name}=${value}`, `Path=${path}`, `Max-Age=${maxAgeSeconds}`, ...flags].join("; ");
}

/** The first of that name. */
export function readCookie(headers: HeaderList, name: string): string | undefined {
  for (const pair of cookiePairs(headers)) if (pair.startsWith(`${name}=`)) return pair.slice(name.length + 1);
  return undefined;
}

/** Only cookies of other names stay. */
export function removeCookies(headers: HeaderList, isOurs: (name: string) => boolean): void {
  const all = cookiePairs(headers);
  const others = all.filter((pair) => !isOurs(pair.slice(0, Math.max(0, pair.indexOf("=")))));
  if (others.length === all.length) return;
  if (others.length === 0) headers.delete("cookie");
  else headers.set("cookie", others.join("; "));
}

function cookiePairs(headers: HeaderList): string[] {
  // HTTP/2 clients may send one line per cookie.
  return headers.getAll("cookie").flatMap((line) => line.split(";").map((pair) => pair.trim()));
}
