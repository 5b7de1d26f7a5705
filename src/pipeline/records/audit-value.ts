/**
 * One value of an audit record, given in pieces: its hash, or its beginning with credentials redacted. Memory is bounded
 * by `maxValueChars` however long the value is.
 */
import { createHash, createHmac } from "node:crypto";
import type { Exchange } from "../../core/exchange.ts";
import type { LogValue } from "../../observe/log/logger.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import { shown } from "./access-fields.ts";
import type { AuditSettings } from "./audit-settings.ts";

/** Kept beyond what is shown, so that a credential at the cut is recognised as a whole: no header is longer. */
export const MARGIN_CHARS = 32 * 1024;

export interface RecordedValue {
  add(text: string): void;
  fields(): Record<string, LogValue>;
}

export function recordValue(
  name: "arguments" | "result",
  how: AuditSettings["arguments"],
  { hashKey, maxValueChars }: Pick<AuditSettings, "hashKey" | "maxValueChars">,
  redaction: Redaction,
  exchange: Exchange,
  /** What was hidden in the arguments of the call: added to by them, and hidden in its result. */
  secrets: string[],
): RecordedValue | undefined {
  if (how === "none") return undefined;
  if (how === "hash") {
    const hash = hashKey === undefined ? createHash("sha256") : createHmac("sha256", hashKey);
    return {
      add: (text) => void hash.update(text),
      fields: () => ({ [`${name}_sha256`]: hash.digest("hex") }),
    };
  }
  let kept = "";
  let length = 0;
  return {
    add(text) {
      length += text.length;
      const room = maxValueChars + MARGIN_CHARS - kept.length;
      if (room > 0) kept += text.slice(0, room);
    },
    fields: () => ({
      [name]: shown(kept, exchange, redaction, {
        maxChars: maxValueChars,
        ...(name === "arguments" ? { found: secrets } : { alsoHidden: secrets }),
      }),
      ...(length > maxValueChars ? { [`${name}_cut`]: true } : {}),
    }),
  };
}
