/**
 * Recognizes an LLM request on its way to a plain HTTP backend: JSON that names a model, a form that does, or an address.
 * The server at the other end is not known, so the request is read as leniently as any server might, and
 * text that two servers could read differently is unclear.
 */
import { isUtf8 } from "node:buffer";
import type { Steps } from "../../base/turns.ts";
import type { Exchange } from "../../core/exchange.ts";
import { LlmRequestFacts } from "./llm-facts.ts";
import { ModelNames, modelsInHeaders, modelsInJson, modelsInPath, modelsInQuery } from "./named-models.ts";
import { readingSteps } from "./read-request.ts";

/** About 0.3 ms. */
const STEP_BYTES = 64 * 1024;
/** So that a word that stands across two steps is found. */
const WORD_BYTES = 8;
const OPEN_BRACKET = 91;
const OPEN_BRACE = 123;
const BYTE_ORDER_MARK = 0xfeff;

export interface Detected {
  readonly facts: LlmRequestFacts | undefined;
  /** Begins like JSON but cannot be read in one way only: two models, two objects, no UTF-8. */
  readonly isUnclear: boolean;
}

const NOTHING: Detected = { facts: undefined, isUnclear: false };
const UNCLEAR: Detected = { facts: undefined, isUnclear: true };

/** The head of a request, as far as it can name models. */
export interface RequestHead {
  readonly path: string;
  readonly query: string;
  /** The client's headers: names in lower case and values in turn. */
  readonly pairs: readonly string[];
}

export function headOf({ request: { path, query }, sentPairs: pairs }: Exchange): RequestHead {
  return { path, query, pairs };
}

/** The models that the head itself names. */
export function modelsInHead({ path, query, pairs }: RequestHead): readonly string[] {
  const found = new ModelNames();
  modelsInPath(path, found);
  modelsInQuery(query, found);
  modelsInHeaders(pairs, found);
  return found.names;
}

/** Of a body that begins like JSON. */
export function* detectLlmRequest(head: RequestHead, bytes: Buffer): Steps<Detected> {
  const others = modelsInHead(head);
  if (firstByte(bytes) === OPEN_BRACKET) return yield* detectInList(bytes, others);
  // Which server stands behind a plain backend is not known: it may be one that ignores the case of keys.
  const reading = yield* readingSteps(head.path, bytes, "any");
  if (!reading.ok) return UNCLEAR;
  const { dialect, streaming } = reading;
  let isCall = reading.model !== undefined || others.length > 0 || dialect.isKnown;
  if (!isCall) {
    const outermost = new ModelNames();
    yield* modelsInJson(bytes, false, outermost);
    isCall = outermost.names.length > 0;
  }
  if (!isCall) return NOTHING;
  const facts = new LlmRequestFacts(reading.model ?? others[0], streaming, bytes, undefined, others);
  yield* facts.findModels();
  if (LlmRequestFacts.modelsOf(facts).length === 0) return NOTHING;
  if (dialect.free) facts.makeFree();
  return { facts, isUnclear: false };
}

/** A list of requests, as some servers take them; of any other list, nothing is known. */
function* detectInList(bytes: Buffer, others: readonly string[]): Steps<Detected> {
  if (bytes.includes(0) || !isUtf8(bytes)) return UNCLEAR;
  const found = new ModelNames();
  yield* modelsInJson(bytes, false, found);
  if (found.names.length === 0 && others.length === 0) return NOTHING;
  return { facts: new LlmRequestFacts(others[0], false, bytes, undefined, others), isUnclear: false };
}

/**
 * How a body begins, of which more may follow: `json` as UTF-8, `foreign` as JSON in UTF-16 or UTF-32, which servers
 * recognize by its first bytes, `other`, or `open` as long as it could still be any of them.
 */
export function beginningOf(bytes: Buffer): "json" | "foreign" | "other" | "open" {
  const first = firstByte(bytes);
  if (first === OPEN_BRACE || first === OPEN_BRACKET) return "json";
  // Neither a blank, a NUL nor part of a byte order mark: no encoding of JSON begins so.
  if (bytes.length > 0 && !isBlank(bytes[0] as number) && !BEGINNINGS.has(bytes[0] as number)) return "other";
  let isOpen = first === undefined;
  for (const [width, isLittle] of FOREIGN) {
    const unit = firstUnit(bytes, width, isLittle);
    if (unit === OPEN_BRACE || unit === OPEN_BRACKET) return "foreign";
    isOpen ||= unit === undefined;
  }
  return isOpen ? "open" : "other";
}

const BEGINNINGS: ReadonlySet<number> = new Set([0x00, 0xef, 0xfe, 0xff]);
const FOREIGN = [
  [2, true],
  [2, false],
  [4, true],
  [4, false],
] as const;

/** The first byte of UTF-8 that is neither blank nor part of a byte order mark; undefined if it has not arrived. */
function firstByte(bytes: Buffer): number | undefined {
  let at = 0;
  if (bytes[0] === 0xef && (bytes.length < 2 || bytes[1] === 0xbb) && (bytes.length < 3 || bytes[2] === 0xbf)) at = 3;
  while (at < bytes.length && isBlank(bytes[at] as number)) at += 1;
  return bytes[at];
}

function firstUnit(bytes: Buffer, width: 2 | 4, isLittle: boolean): number | undefined {
  for (let at = 0; at + width <= bytes.length; at += width) {
    const unit = isLittle ? bytes.readUIntLE(at, width) : bytes.readUIntBE(at, width);
    if (!isBlank(unit) && !(at === 0 && unit === BYTE_ORDER_MARK)) return unit;
  }
  return undefined;
}

function isBlank(unit: number): boolean {
  return unit === 32 || unit === 10 || unit === 13 || unit === 9;
}

/** Whether some reader could find a model in it: the word, in any case, or letters that are written as escapes. */
export function* mayNameModel(bytes: Buffer): Steps<boolean> {
  for (let from = 0; from < bytes.length; from += STEP_BYTES) {
    if (from > 0) yield;
    if (/model|\\u00/i.test(bytes.toString("latin1", from, from + STEP_BYTES + WORD_BYTES))) return true;
  }
  return false;
}
