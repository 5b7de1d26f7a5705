/**
 * Detects LLM requests to plain HTTP backends by a model in the JSON body or the request head, or by a known path. The
 * server's parser is unknown, so an ambiguous body is reported as unclear.
 */
import { isUtf8 } from "node:buffer";
import type { Steps } from "../../base/sliced-work.ts";
import type { Exchange } from "../../core/exchange.ts";
import { type Cost, type CostedRequest, detectDialect, listedCost } from "./dialect.ts";
import { LlmRequestAttributes } from "./llm-call.ts";
import {
  ModelNames,
  modelsInHeaders,
  modelsInJson,
  modelsInPath,
  modelsInQuery,
  readingSteps,
} from "./read-request.ts";

const STEP_BYTES = 64 * 1024;
/** Steps overlap by this many bytes, to find a word that crosses a step boundary. */
const WORD_BYTES = 8;
const OPEN_BRACKET = 91;
const OPEN_BRACE = 123;
const BYTE_ORDER_MARK = 0xfeff;

interface Detected {
  readonly attributes: LlmRequestAttributes | undefined;
  /** True if the body cannot be read unambiguously, for example because of repeated keys or invalid UTF-8. */
  readonly isUnclear: boolean;
}

const NOTHING: Detected = { attributes: undefined, isUnclear: false };
const UNCLEAR: Detected = { attributes: undefined, isUnclear: true };

interface RequestHead {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly pairs: readonly string[];
}

export function requestHead({ request: { method, path, query }, sentPairs: pairs }: Exchange): RequestHead {
  return { method, path, query, pairs };
}

export function modelsInHead({ path, query, pairs }: RequestHead): readonly string[] {
  const found = new ModelNames();
  modelsInPath(path, found);
  modelsInQuery(query, found);
  modelsInHeaders(pairs, found);
  return found.names;
}

/** `bytes` must start like a JSON object or array. */
export function* detectLlmRequest(head: RequestHead, bytes: Buffer): Steps<Detected> {
  const others = modelsInHead(head);
  if (firstByte(bytes) === OPEN_BRACKET) return yield* detectInList(head, bytes, others);
  // The backend may ignore the case of keys.
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
  const attributes = new LlmRequestAttributes(reading.model ?? others[0], streaming, bytes, others);
  yield* attributes.findModels();
  if (LlmRequestAttributes.modelsOf(attributes).length === 0) return NOTHING;
  attributes.setCost(hostCost(head));
  return { attributes, isUnclear: false };
}

/** A plain HTTP backend may be any server, so the cost of an endpoint that is not listed is estimated. */
export function hostCost(request: Omit<CostedRequest, "isUpgrade">, isUpgrade = false): Cost {
  const { method, path, query } = request;
  return listedCost({ method, path, query, isUpgrade }, detectDialect(path)) ?? "metered";
}

function* detectInList(head: RequestHead, bytes: Buffer, others: readonly string[]): Steps<Detected> {
  if (bytes.includes(0) || !isUtf8(bytes)) return UNCLEAR;
  const found = new ModelNames();
  yield* modelsInJson(bytes, false, found);
  if (found.names.length === 0 && others.length === 0) return NOTHING;
  const attributes = new LlmRequestAttributes(others[0], false, bytes, others);
  attributes.setCost(hostCost(head));
  return { attributes, isUnclear: false };
}

/**
 * Classifies the start of a body: `json` is an object or array in UTF-8, `foreign` is one in UTF-16 or UTF-32, `other`
 * is neither, and `open` needs more bytes.
 */
export function classifyBodyStart(bytes: Buffer): "json" | "foreign" | "other" | "open" {
  const first = firstByte(bytes);
  if (first === OPEN_BRACE || first === OPEN_BRACKET) return "json";
  // No supported encoding of an object or array starts with any other byte.
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

/** Skips whitespace and a byte order mark. Returns undefined if the first significant byte has not arrived. */
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

/**
 * Returns true if the body contains `model` in any case, or an escape that a parser could decode to a letter of
 * `model`.
 */
export function* mayNameModel(bytes: Buffer): Steps<boolean> {
  for (let from = 0; from < bytes.length; from += STEP_BYTES) {
    if (from > 0) yield;
    if (/model|\\u00/i.test(bytes.toString("latin1", from, from + STEP_BYTES + WORD_BYTES))) return true;
  }
  return false;
}
