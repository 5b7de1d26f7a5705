/**
 * Detects headers about the encoding of a body. The gateway decodes JSON as UTF-8, as RFC 8259 requires. A server that
 * applies another charset (UTF-7 can hide quotes) or a content coding could parse a different document from the same
 * bytes.
 */
import type { HeaderList } from "./headers.ts";

const ALLOWED: ReadonlySet<string> = new Set(["", "utf-8", "utf8", "us-ascii"]);
const CHARSET = /charset\s*\*?\s*=([^;,]*)/gi;

/** Returns the first charset of the content-type headers that is not UTF-8 or US-ASCII, or undefined. */
export function foreignCharset(headers: HeaderList): string | undefined {
  for (const value of headers.getAll("content-type")) {
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

/** Returns why a server may parse a different document from the body than the gateway. */
export function hiddenBody(headers: HeaderList): string | undefined {
  const coding = headers.get("content-encoding")?.trim().toLowerCase() ?? "identity";
  if (coding !== "identity") return "the body is encoded";
  const charset = foreignCharset(headers);
  return charset === undefined ? undefined : `the body's charset is ${charset}`;
}
