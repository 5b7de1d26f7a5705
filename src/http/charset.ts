/**
 * What headers say about the encoding of a body. The gateway reads JSON as UTF-8, as its standard says; a server that obeys
 * another charset (UTF-7 hides quotes in plain text) or a content coding would read another document in the same bytes.
 */
import type { HeaderList } from "./headers.ts";

const ALLOWED: ReadonlySet<string> = new Set(["", "utf-8", "utf8", "us-ascii"]);
const CHARSET = /charset\s*\*?\s*=([^;,]*)/gi;

/** A charset that is not UTF-8, in any content-type header of the request; undefined if there is none. */
export function foreignCharset(headers: HeaderList): string | undefined {
  for (const value of headers.getAll("content-type")) {
    // Nearly all requests say this, and it names none.
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

/** Why a server could read another document in the body than the gateway, if so. */
export function hiddenBody(headers: HeaderList): string | undefined {
  const coding = headers.get("content-encoding")?.trim().toLowerCase() ?? "identity";
  if (coding !== "identity") return "the body is encoded";
  const charset = foreignCharset(headers);
  return charset === undefined ? undefined : `the body's charset is ${charset}`;
}
