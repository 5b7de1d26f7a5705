/**
 * A request's path as routes see it, and what two readers could understand differently in it. What is forwarded
 * stays as it was sent.
 */

const UNRESERVED = /%(?:2d|2e|5f|7e|3[0-9]|4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])/gi;
const ENCODED_SEPARATOR = /%(?:2f|5c)/i;

/**
 * Needlessly encoded characters decoded and slashes merged, so that `//admin` and `/%61dmin` meet the policies of
 * `/admin`.
 */
export function pathForMatching(path: string): string {
  if (!path.includes("%") && !path.includes("//")) return path;
  return path
    .replace(UNRESERVED, (code) => String.fromCharCode(Number.parseInt(code.slice(1), 16)))
    .replace(/\/{2,}/g, "/");
}

/** An encoded separator lets the backend see other segments than the route that was matched and authorised. */
export function hasEncodedSeparator(path: string): boolean {
  return path.includes("%") && ENCODED_SEPARATOR.test(path);
}

/** The path that a backend sees which takes encoded separators for real ones. */
export function withSeparatorsDecoded(path: string): string {
  return path.replace(/%(?:2f|5c)/gi, "/");
}

export function pathAndQuery({ path, query }: { readonly path: string; readonly query: string }): string {
  return query === "" ? path : `${path}?${query}`;
}
