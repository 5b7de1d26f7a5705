/**
 * Encodes and decodes the HTTP headers that contain values of the body (2026-07-28, "Request Metadata"). Values that
 * are not safe in a header are Base64-encoded.
 */

/** Maps each method to the parameter that is also sent in the `Mcp-Name` header. */
export const MIRRORED: ReadonlyMap<string, "name" | "uri"> = new Map([
  ["tools/call", "name"],
  ["prompts/get", "name"],
  ["resources/read", "uri"],
]);

const PREFIX = "=?base64?";
const SUFFIX = "?=";
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** Returns a safe value unchanged and encodes other values as `=?base64?…?=`. */
export function mirrorHeader(value: string): string {
  const isPlain =
    /^[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?$/.test(value) && !(value.startsWith(PREFIX) && value.endsWith(SUFFIX));
  return isPlain ? value : `${PREFIX}${Buffer.from(value).toString("base64")}${SUFFIX}`;
}

export function readMirrorHeader(header: string): string | undefined {
  if (!header.startsWith(PREFIX) || !header.endsWith(SUFFIX))
    return /^[\x20-\x7e\t]*$/.test(header) ? header : undefined;
  const inside = header.slice(PREFIX.length, -SUFFIX.length);
  return BASE64.test(inside) ? Buffer.from(inside, "base64").toString("utf8") : undefined;
}
