/**
 * Applies result guards, which mask matches in the messages of a server or reject the messages. The `text` members at
 * the same depth, such as those in the items of `content`, are checked as one text.
 */

import { decodeText, isBinary, SAMPLED_CHARACTERS } from "../../base/encoded-text.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { elementsInSteps, findInSteps, slice, splice } from "../../json/json-text.ts";
import { type Edit, editAt, keyAt, type Span, skipSpace, stringEnd } from "../../json/syntax.ts";
import { spreadText } from "../../llm/guards/guarded-text.ts";
import { MIN_GUARDED_DIGITS } from "../../llm/guards/text-places.ts";
import { LISTS } from "../protocol/access.ts";
import {
  asServerMessage,
  edited,
  errorText,
  INTERNAL_ERROR,
  resultText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import type { ResultGuard, ResultWatch, WatchFinding } from "./tool-settings.ts";

const QUOTE = 34;
const MINUS = 45;
const ZERO = 48;
const NINE = 57;
const COLON = 58;
const OPEN_ARRAY = 91;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/** Limits the time that patterns run on a thread that other clients share. */
const MAX_GUARDED_CHARS = peerInput("mcp-server/guarded-text").maxBytes;

const STEP_CHARS = 16 * 1024;
const STEP_TEXTS = 4096;

const ENCODED: ReadonlySet<string> = new Set(["data", "blob"]);

/**
 * These members are returned to the server unchanged or select the message format. They are checked only if they
 * contain white space.
 */
const OPAQUE: ReadonlySet<string> = new Set(["nextCursor", "progressToken", "requestState", "resultType", "taskId"]);

/** Names and values of the protocol, which occur in most messages and contain no text. External guards omit them. */
const PROTOCOL_WORDS: ReadonlySet<string> = new Set([
  ...["", "content", "type", "text", "image", "audio", "resource", "resource_link", "data", "blob", "mimeType", "uri"],
  ...["structuredContent", "isError", "annotations", "audience", "user", "assistant", "priority", "lastModified"],
  ...["_meta", "messages", "role", "description", "contents", "completion", "values", "total", "hasMore"],
  ...["code", "message", "progressToken", "progress", "level", "logger", "requestId", "reason"],
  ...["task", "taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval", "resultType"],
]);

/** Only these members of a server description are checked, because users and models read them. */
const DESCRIBED = ["instructions", "serverInfo", "_meta"];
const DESCRIPTIONS: ReadonlySet<string> = new Set(["initialize", "server/discover"]);

/**
 * For a result or an error, `method` is the method of its request. A rejected result or error is replaced with the
 * refusal. Returns undefined if a notification or a request is rejected.
 */
export function* guardedMessage(
  message: ServerMessage,
  guard: ResultGuard,
  method: string,
): Steps<ServerMessage | undefined> {
  if (message.kind === "result" && DESCRIPTIONS.has(method)) return yield* guardedDescription(message, guard);
  const list = message.kind === "result" ? LISTS[method] : undefined;
  const items = list && (yield* findInSteps(message.text, 0, "result", list.member));
  const shown = items ? yield* withGuardedItems(message, items, guard) : message;
  const body = yield* findInSteps(shown.text, 0, bodyMember(shown));
  if (!body) return shown;
  const checked = yield* checkedSpans(shown.text, [body], guard);
  if (checked === undefined) return rejectedMessage(message, guard.refusal, method);
  if (checked === "too large") return tooLargeMessage(message, guard.refusal, method);
  return checked.length === 0 ? shown : edited(shown, checked);
}

/**
 * Returns the actions that guards in shadow mode would take, without duplicates. If any guard would reject the message,
 * masks are omitted.
 */
export function* watchedMessage(message: ServerMessage, watch: ResultWatch): Steps<WatchFinding[]> {
  const body = yield* findInSteps(message.text, 0, bodyMember(message));
  return yield* watchedSpans(message.text, body ? [body] : [], watch);
}

export function* watchedSpans(text: string, spans: readonly Span[], watch: ResultWatch): Steps<WatchFinding[]> {
  const found = new Map<string, WatchFinding>();
  const add = (findings: readonly WatchFinding[]): void => {
    for (const one of findings) found.set(`${one.action} ${one.rule}`, one);
  };
  const runs = yield* readRuns(text, spans);
  if (runs === "too large") add(watch.unread);
  else for (const run of runs) add(yield* watch.found(run.map(({ text }) => text)));
  const findings = [...found.values()];
  const rejecting = findings.filter(({ action }) => action === "reject");
  return rejecting.length > 0 ? rejecting : findings;
}

export type FoundTexts = SpanTexts | "nothing" | "too large";

export interface SpanTexts {
  readonly texts: readonly string[];
  /** Returns the edits that put these texts in place. They must have the same length and order. */
  edits(texts: readonly string[]): Edit[];
}

/**
 * Finds the texts for external guards. Lists and server descriptions contain none, because every session reads them
 * again and the lock file pins them.
 */
export function* messageTexts(message: ServerMessage, method: string): Steps<FoundTexts> {
  if (message.kind === "result" && (DESCRIPTIONS.has(method) || LISTS[method] !== undefined)) return "nothing";
  const body = yield* findInSteps(message.text, 0, bodyMember(message));
  return body ? yield* spanTexts(message.text, [body]) : "nothing";
}

export function* spanTexts(text: string, spans: readonly Span[]): Steps<FoundTexts> {
  const found = yield* readRuns(text, spans);
  if (found === "too large") return found;
  const runs = found.filter((run) => run.some((one) => !PROTOCOL_WORDS.has(one.text)));
  if (runs.length === 0) return "nothing";
  return {
    texts: runs.map((run) => run.map((one) => one.text).join("")),
    edits(texts) {
      const edits = runs.flatMap((run, i) => {
        const parts = spreadText(
          run.map((one) => one.text),
          texts[i] ?? "",
        );
        return run.flatMap((one, at) => (parts[at] === one.text ? [] : [createEdit(one, parts[at] ?? "")]));
      });
      return inOrder(edits);
    },
  };
}

export function refusedAnswer(refusal: string): ServerMessage {
  return asServerMessage(errorText("0", INTERNAL_ERROR, refusal));
}

function bodyMember({ kind }: ServerMessage): string {
  return kind === "result" || kind === "error" ? kind : "params";
}

export function tooLargeMessage(message: ServerMessage, refusal: string, method: string): ServerMessage | undefined {
  return rejectedMessage(message, `${refusal} (the result is too large to be checked)`, method);
}

/** Returns undefined for notifications and requests. */
export function rejectedMessage(message: ServerMessage, refusal: string, method: string): ServerMessage | undefined {
  if (message.kind === "notification" || message.kind === "request") return undefined;
  if (message.kind === "error" || method !== "tools/call") return refusedAnswer(refusal);
  const result = { content: [{ type: "text", text: refusal }], isError: true };
  return asServerMessage(resultText("0", JSON.stringify(result)));
}

function* withGuardedItems(message: ServerMessage, list: Span, guard: ResultGuard): Steps<ServerMessage> {
  const { text } = message;
  const kept: string[] = [];
  let isChanged = false;
  for (const item of yield* elementsInSteps(text, list.start)) {
    const own = slice(text, item);
    const checked = yield* checkedSpans(own, [{ start: 0, end: own.length }], guard);
    isChanged ||= checked === undefined || checked === "too large" || checked.length > 0;
    if (Array.isArray(checked)) kept.push(checked.length === 0 ? own : splice(own, checked));
    yield;
  }
  return isChanged ? edited(message, [{ start: list.start, end: list.end, text: `[${kept.join(",")}]` }]) : message;
}

/** Changes rejected strings instead of rejecting the message, so that the session can open. */
function* guardedDescription(message: ServerMessage, guard: ResultGuard): Steps<ServerMessage> {
  const spans: Span[] = [];
  for (const name of DESCRIBED) {
    const span = yield* findInSteps(message.text, 0, "result", name);
    if (span) spans.push(span);
  }
  spans.sort((a, b) => a.start - b.start);
  const runs = yield* readRuns(message.text, spans);
  if (runs === "too large")
    return edited(
      message,
      spans.map((span) => editAt(span, emptyLike(message, span))),
    );
  const edits: Edit[] = [];
  for (const run of runs) {
    const checked = yield* guard.checked(run.map(({ text }) => text));
    for (const [i, one] of run.entries()) {
      const text = checked === undefined ? guard.refusal : checked[i];
      if (text !== undefined && text !== one.text) edits.push(createEdit(one, text));
    }
  }
  return edits.length === 0 ? message : edited(message, inOrder(edits));
}

function emptyLike({ text }: ServerMessage, { start }: Span): string {
  return text.charCodeAt(start) === OPEN_OBJECT ? '{"name":"","version":""}' : '""';
}

/**
 * Returns the edits that mask matches, `too large` if the text cannot be checked, or undefined if the guard rejects a
 * string.
 */
export function* checkedSpans(
  text: string,
  spans: readonly Span[],
  guard: ResultGuard,
): Steps<Edit[] | "too large" | undefined> {
  const runs = yield* readRuns(text, spans);
  if (runs === "too large") return runs;
  const edits: Edit[] = [];
  for (const run of runs) {
    const parts = run.map((one) => one.text);
    const checked = yield* guard.checked(parts);
    if (checked === undefined) return undefined;
    for (const [i, one] of run.entries()) {
      if (checked[i] !== undefined && checked[i] !== one.text) edits.push(createEdit(one, checked[i]));
      if (i % STEP_TEXTS === STEP_TEXTS - 1) yield;
    }
  }
  return inOrder(edits);
}

interface FoundString extends Span {
  readonly text: string;
  encode(text: string): string;
}

function createEdit({ start, end, encode }: FoundString, text: string): Edit {
  return { start, end, text: JSON.stringify(encode(text)) };
}

/** Sorts edits by position. A string that was checked both raw and decoded is edited once. */
function inOrder(edits: Edit[]): Edit[] {
  if (edits.every(({ start }, i) => i === 0 || start > (edits[i - 1] as Edit).start)) return edits;
  const byStart = new Map<number, Edit>();
  for (const edit of edits) if (!byStart.has(edit.start)) byStart.set(edit.start, edit);
  return [...byStart.values()].sort((a, b) => a.start - b.start);
}

/** Collects the strings and member names to check. Strings that form one text are grouped in a run. */
function* readRuns(text: string, spans: readonly Span[]): Steps<FoundString[][] | "too large"> {
  const runs: FoundString[][] = [];
  // The key is the depth of the open run of `text` members.
  const open = new Map<number, FoundString[]>();
  let chars = 0;
  for (const span of spans) {
    let key = "";
    let depth = 0;
    let pauseAt = span.start + STEP_CHARS;
    for (let i = span.start; i < span.end; i++) {
      if (i >= pauseAt) {
        pauseAt = i + STEP_CHARS;
        yield;
      }
      const code = text.charCodeAt(i);
      if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1;
      else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) depth -= 1;
      if (code === MINUS || (code >= ZERO && code <= NINE)) {
        const end = numberEnd(text, i, span.end);
        for (const found of readNumber(text, key, i, end)) {
          chars += found.text.length;
          if (chars > MAX_GUARDED_CHARS) return "too large";
          runs.push([found]);
        }
        i = end - 1;
      }
      if (code !== QUOTE) continue;
      const end = stringEnd(text, i);
      const value = keyAt(text, i, end);
      const isKey = text.charCodeAt(skipSpace(text, end)) === COLON;
      for (const found of isKey ? [plainString(value, i, end)] : readString(value, key, i, end)) {
        chars += found.text.length;
        if (chars > MAX_GUARDED_CHARS) return "too large";
        const run = !isKey && key === "text" ? open.get(depth) : undefined;
        if (run) run.push(found);
        else {
          const own = [found];
          runs.push(own);
          if (!isKey && key === "text") open.set(depth, own);
        }
      }
      key = isKey ? value : key;
      i = end - 1;
    }
    open.clear();
  }
  return runs;
}

function readString(value: string, key: string, start: number, end: number): FoundString[] {
  if (OPAQUE.has(key) && !/\s/.test(value)) return [];
  const isEncoded = ENCODED.has(key);
  if (!isEncoded && (key === "text" || !value.startsWith("data:"))) return [plainString(value, start, end)];
  if (isBinary(value.slice(0, SAMPLED_CHARACTERS), isEncoded, ""))
    return value.length < SAMPLED_CHARACTERS ? [plainString(value, start, end)] : [];
  const decoded = decodeText(value, isEncoded);
  const plain = plainString(value, start, end);
  return decoded === undefined ? [plain] : [plain, { ...decoded, start, end }];
}

function numberEnd(text: string, start: number, limit: number): number {
  let end = start + 1;
  while (end < limit && isNumberPart(text.charCodeAt(end))) end += 1;
  return end;
}

/** Digits, and `+`, `-`, `.`, `E`, `e`. */
function isNumberPart(code: number): boolean {
  return (code >= ZERO && code <= NINE) || code === MINUS || code === 43 || code === 46 || code === 69 || code === 101;
}

/**
 * Servers send numbers on as text, in the spelling of the message or their own (`4.1e15` becomes `4100000000000000`), so
 * both are checked. A changed number becomes a string.
 */
function readNumber(text: string, key: string, start: number, end: number): FoundString[] {
  if (end - start < 3 || OPAQUE.has(key)) return [];
  const spelling = text.slice(start, end);
  const value = String(Number(spelling));
  return [...new Set([spelling, value])]
    .filter((one) => one.length >= MIN_GUARDED_DIGITS)
    .map((one) => plainString(one, start, end));
}

function plainString(text: string, start: number, end: number): FoundString {
  return { text, start, end, encode: (changed) => changed };
}
