/**
 * Detects headers about the encoding of a body. The gateway reads JSON as UTF-8, as the standard requires. A server
 * that honors another charset (UTF-7 hides quotes in plain text) or a content coding would read a different document
 * from the same bytes.
 */
import type { HeaderList } from "./headers.ts";

const ALLOWED: ReadonlySet<string> = new Set(["", "utf-8", "utf8", "us-ascii"]);
const CHARSET = /charset\s*\*?\s*=([^;,]*)/gi;

/** Returns a charset other than UTF-8 from any content-type header of the request; undefined if there is none. */
export function foreignCharset(headers: HeaderList): string | undefined {
  for (const value of headers.getAll("content-type")) {
    // The most common value, which has no charset.
    if (value === "application/json") continue;
    for (const [, name = ""] of value.matchAll(CHARSET)) {
      const charset = name
        .trim()
        .replace(/^"(.*)"$/, "$1")
        .toLowerCase();
      if (!ALLOWED.has(charset)) return charset.slice(0, 40);
    }
  }
  return undefined;
}

/** Returns why a server could read a different document from the body than the gateway; undefined if it could not. */
export function hiddenBody(headers: HeaderList): string | undefined {
  const coding = headers.get("content-encoding")?.trim().toLowerCase() ?? "identity";
  if (coding !== "identity") return "the body is encoded";
  const charset = foreignCharset(headers);
  return charset === undefined ? undefined : `the body's charset is ${charset}`;
}
