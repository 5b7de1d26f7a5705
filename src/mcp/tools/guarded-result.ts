/**
 * A tool's result under a guard: every text in it is looked at as the model would read it, and masked or refused. What
 * is too large to be looked at does not pass.
 */
import type { Steps } from "../../lib/process/turns.ts";
import { asServerMessage, edited, resultText, type ServerMessage } from "../wire/json-rpc.ts";
import { findInSteps } from "../wire/json-steps.ts";
import { type Edit, keyOf, skipSpace, stringEnd } from "../wire/json-text.ts";
import type { ResultGuard, ResultWatch, WatchFinding } from "./tool-product.ts";

const QUOTE = 34;
const COLON = 58;

/** Patterns run over all of it, on the thread that serves everybody. */
const MAX_GUARDED_CHARS = 2 * 1024 * 1024;

/** Looked through in one step, without what the guard does with the texts. */
const STEP_CHARS = 16 * 1024;

/** Encoded bytes, which no pattern for texts can read. */
const BINARY: ReadonlySet<string> = new Set(["data", "blob"]);

export function* guardedResult(message: ServerMessage, guard: ResultGuard): Steps<ServerMessage> {
  const edits: Edit[] = [];
  let refused: string | undefined;
  const isWhole = yield* eachText(message, function* (text, start, end) {
    const checked = yield* guard.checked(text);
    if (checked === undefined) refused = guard.refusal;
    else if (checked !== text) edits.push({ start, end, text: JSON.stringify(checked) });
    return refused === undefined;
  });
  if (refused !== undefined) return refusal(refused);
  if (!isWhole) return refusal(`${guard.refusal} (the result is too large to be checked)`);
  return edits.length === 0 ? message : edited(message, edits);
}

/** What guards in shadow mode would do with the result: each once, and no masks where it would be rejected. */
export function* watchedResult(message: ServerMessage, watch: ResultWatch): Steps<WatchFinding[]> {
  const found = new Map<string, WatchFinding>();
  const add = (findings: readonly WatchFinding[]): void => {
    for (const one of findings) found.set(`${one.action} ${one.rule}`, one);
  };
  const isWhole = yield* eachText(message, function* (text) {
    add(yield* watch.found(text));
    return true;
  });
  if (!isWhole) add(watch.unread);
  const findings = [...found.values()];
  const rejected = findings.filter(({ action }) => action === "reject");
  return rejected.length > 0 ? rejected : findings;
}

/** Every text of a result, as the model would read it, until `visit` says false. False if there is too much of it. */
function* eachText(
  message: ServerMessage,
  visit: (text: string, start: number, end: number) => Steps<boolean>,
): Steps<boolean> {
  const result = message.kind === "result" ? yield* findInSteps(message.text, 0, "result") : undefined;
  if (!result) return true;
  let chars = 0;
  let key = "";
  let pauseAt = result.start + STEP_CHARS;
  for (let i = result.start; i < result.end; i++) {
    if (i >= pauseAt) {
      pauseAt = i + STEP_CHARS;
      yield;
    }
    if (message.text.charCodeAt(i) !== QUOTE) continue;
    const end = stringEnd(message.text, i);
    const isKey = message.text.charCodeAt(skipSpace(message.text, end)) === COLON;
    if (isKey || !BINARY.has(key)) {
      chars += end - i;
      if (chars > MAX_GUARDED_CHARS) return false;
      if (!(yield* visit(keyOf(message.text, i, end), i, end))) return true;
    }
    key = isKey ? message.text.slice(i + 1, end - 1) : "";
    i = end - 1;
  }
  return true;
}

function refusal(text: string): ServerMessage {
  return asServerMessage(resultText("0", JSON.stringify({ content: [{ type: "text", text }], isError: true })));
}
