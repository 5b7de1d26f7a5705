/**
 * A tool's result under a guard: every text in it is looked at as the model would read it, and masked or refused. What
 * is too large to be looked at does not pass.
 */
import { asServerMessage, edited, resultText, type ServerMessage } from "../wire/json-rpc.ts";
import { type Edit, find, keyOf, skipSpace, stringEnd } from "../wire/json-text.ts";
import type { ResultGuard } from "./tool-product.ts";

const QUOTE = 34;
const COLON = 58;

/** Patterns run over all of it, on the thread that serves everybody. */
const MAX_GUARDED_CHARS = 2 * 1024 * 1024;

/** Encoded bytes, which no pattern for texts can read. */
const BINARY: ReadonlySet<string> = new Set(["data", "blob"]);

export function guardedResult(message: ServerMessage, guard: ResultGuard): ServerMessage {
  const result = message.kind === "result" ? find(message.text, 0, "result") : undefined;
  if (!result) return message;
  const edits: Edit[] = [];
  let chars = 0;
  let key = "";
  for (let i = result.start; i < result.end; i++) {
    if (message.text.charCodeAt(i) !== QUOTE) continue;
    const end = stringEnd(message.text, i);
    const isKey = message.text.charCodeAt(skipSpace(message.text, end)) === COLON;
    if (isKey || !BINARY.has(key)) {
      chars += end - i;
      if (chars > MAX_GUARDED_CHARS) return refusal(`${guard.refusal} (the result is too large to be checked)`);
      const text = keyOf(message.text, i, end);
      const checked = guard.checked(text);
      if (checked === undefined) return refusal(guard.refusal);
      if (checked !== text) edits.push({ start: i, end, text: JSON.stringify(checked) });
    }
    key = isKey ? message.text.slice(i + 1, end - 1) : "";
    i = end - 1;
  }
  return edits.length === 0 ? message : edited(message, edits);
}

function refusal(text: string): ServerMessage {
  return asServerMessage(resultText("0", JSON.stringify({ content: [{ type: "text", text }], isError: true })));
}
