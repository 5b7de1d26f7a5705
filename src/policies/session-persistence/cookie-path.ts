/**
 * Selects the `Path` of a session cookie: the path of the route's match that the request has, so that the routes of a
 * host have separate cookies.
 */
import type { PersistentRoute } from "../../core/session-persistence.ts";

/** Browsers compare the path before the gateway decodes it, so only paths without escapes are used. */
const PLAIN_PATH = /^\/[A-Za-z0-9\-._~!$&'()*+,=:@/]*$/;
const REGEX_SYNTAX = /[\\^$.|?*+()[\]{}]/;

export function cookiePath({ matches }: Pick<PersistentRoute, "matches">, requestPath: string): string {
  const paths = matches.flatMap(({ path }) => {
    if (path.exact !== undefined) return path.exact === requestPath ? [path.exact] : [];
    return [path.pathPrefix ?? literalPrefix(path.regex ?? "")];
  });
  const fitting = paths
    .map((path) => path.replace(/\/+$/, ""))
    .filter((path) => path !== "" && PLAIN_PATH.test(path) && isWithin(requestPath, path));
  return fitting.reduce((longest, path) => (path.length > longest.length ? path : longest), "/");
}

/** Returns the whole segments before the first part that is not literal. */
function literalPrefix(regex: string): string {
  const source = regex.replace(/^\^/, "");
  const end = source.search(REGEX_SYNTAX);
  // A top-level alternative may have another prefix.
  if (end < 0) return source;
  if (/^[^(]*\|/.test(source)) return "/";
  return source.slice(0, source.lastIndexOf("/", end));
}

function isWithin(path: string, prefix: string): boolean {
  return path === prefix || path.startsWith(`${prefix}/`);
}
