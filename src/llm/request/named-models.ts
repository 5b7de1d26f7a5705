/**
 * Finds the models that a request names in its JSON body, form fields, path, query, and headers. A missed name could
 * bypass a rule, so keys are compared without case and separators. Conversation content and JSON schemas are skipped.
 */

import { finish, type Steps } from "../../base/sliced-work.ts";
import { GatewayError } from "../../core/errors.ts";
import { decodeString, endOfString, foldCase } from "../../json/syntax.ts";

const QUOTE = 34;
const COMMA = 44;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;

const MAX_NAMES = 64;
/** Longer keys are ignored. */
const MAX_KEY_BYTES = 400;
const MAX_KNOWN_KEYS = 1024;
const MAX_KNOWN_KEY_BYTES = 64;
const STEP_BYTES = 32 * 1024;

/**
 * Matches keys that name models, such as `draft_model` and `context_window_fallbacks`, after removing case and
 * separators.
 */
const NAMING =
  /(?:(?:model|fallback)(?:s|ids?|names?|arns?|ur[il]s?|lists?|groups?|deployments?|alias(?:es)?|aliasmap|maps?|slugs?|versions?|identifiers?)?|^(?:azure)?(?:deployment|engine)(?:id|name)?|^preset)$/;

/** These members hold conversation content or schemas. Other spellings of them are searched. */
const CONTENT: ReadonlySet<string> = new Set([
  ...["messages", "contents", "content", "system", "systemInstruction", "system_instruction", "instructions"],
  ...["parameters", "parametersJsonSchema", "input_schema", "inputSchema", "schema", "json_schema", "responseSchema"],
  ...["response_schema", "responseJsonSchema", "arguments"],
]);
/** Under these keys, an array is content, but an object may be a nested request. */
const CONTENT_LISTS: ReadonlySet<string> = new Set(["input", "inputs", "prompt"]);

/** Matches the path layouts of Azure, Bedrock, Hugging Face, OpenAI engines, Triton, and Vertex. Names may contain `/`. */
const IN_PATH =
  /\/(?:models|model|tunedModels|engines|deployments)\/(.+?)(?::[A-Za-z]+$|\/(?:v\d\w*|chat|completions|embeddings|responses|messages|images|audio|realtime|rerank|converse|converse-stream|invoke|invoke-with-response-stream|count-tokens|infer|generate|generate_stream|predictions|versions)(?:\/.*)?$|$)/;

export function namesModel(key: string): boolean {
  return NAMING.test(foldCase(key).replace(/[^a-z]/g, ""));
}

export function isContent(key: string): boolean {
  return CONTENT.has(key) || CONTENT_LISTS.has(key);
}

export class ModelNames {
  readonly names: string[] = [];

  add(name: string): void {
    if (name === "" || this.names.includes(name)) return;
    if (this.names.length >= MAX_NAMES)
      throw new GatewayError("bad_request", {
        message: `the request names more than ${MAX_NAMES} models, and a rule, limit or key must know them all`,
      });
    this.names.push(name);
  }
}

/**
 * If `isCall` is false, nested members are ignored, because JSON like `{"car": {"model": "T"}}` is not an LLM request.
 * The JSON must be balanced.
 */
export function* modelsInJson(bytes: Buffer, isCall: boolean, found: ModelNames): Steps<void> {
  /** `objects` and `naming` are stacks with one entry per open container. */
  const objects: boolean[] = [];
  const naming: boolean[] = [];
  let depth = 0;
  let expectsKey = false;
  let member: MemberKind = "other";
  let pausedAt = 0;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] as number;
    if (byte === QUOTE) {
      const end = endOfString(bytes, i + 1);
      if (expectsKey) {
        member = memberKind(bytes, i + 1, end);
        expectsKey = false;
      } else if (member === "names" || (naming[depth - 1] === true && member !== "content"))
        found.add(decodeString(bytes.toString("utf8", i + 1, end)));
      i = end;
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      const isObject = byte === OPEN_BRACE;
      const isNaming = member === "names" || naming[depth - 1] === true;
      const isContent = member === "content" || (member === "content list" && !isObject);
      // The items of a top-level array are treated like a top-level object.
      const isBelow = depth > 1 || (depth === 1 && objects[0] === true);
      if (isContent || (!isCall && !isNaming && isBelow)) i = yield* endOfValue(bytes, i);
      else {
        objects[depth] = isObject;
        naming[depth] = isNaming;
        depth += 1;
        expectsKey = isObject;
        member = "other";
      }
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      depth = Math.max(0, depth - 1);
      expectsKey = false;
      member = "other";
    } else if (byte === COMMA) {
      expectsKey = objects[depth - 1] === true;
      member = "other";
    }
    if (i - pausedAt > STEP_BYTES) {
      pausedAt = i;
      yield;
    }
  }
}

export function modelsInQuery(query: string, found: ModelNames): void {
  if (query === "") return;
  for (const part of query.split(/[&;]/)) {
    const equals = part.indexOf("=");
    if (equals > 0 && namesModel(decodeParameter(part.slice(0, equals))))
      found.add(decodeParameter(part.slice(equals + 1)));
  }
}

/**
 * Reads headers like `x-amzn-sagemaker-target-model`, and JSON options of other gateways like `x-portkey-config`.
 * `pairs` alternates lowercase names and values.
 */
export function modelsInHeaders(pairs: readonly string[], found: ModelNames): void {
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const name = pairs[i] as string;
    const value = (pairs[i + 1] as string).trim();
    // Browsers send the model of a phone in `sec-ch-ua-model`.
    const isNaming =
      (name.includes("model") || name.includes("fallback")) && !name.startsWith("sec-") && namesModel(name);
    if (value.startsWith("{") || value.startsWith("[")) {
      const text = isNaming ? `{"models":${value}}` : value;
      finish(modelsInJson(Buffer.from(text, "latin1"), true, found));
    } else if (isNaming) for (const one of value.split(",")) found.add(one.trim());
  }
}

export function modelsInPath(path: string, found: ModelNames): void {
  const name = IN_PATH.exec(path)?.[1];
  if (name !== undefined) found.add(decodeParameter(name));
}

type MemberKind = "names" | "content" | "content list" | "other";

function memberKind(bytes: Buffer, start: number, end: number): MemberKind {
  if (end - start > MAX_KEY_BYTES) return "other";
  const written = bytes.toString("utf8", start, end);
  const known = KINDS.get(written);
  if (known !== undefined) return known;
  const kind = classifyKey(decodeString(written));
  if (KINDS.size < MAX_KNOWN_KEYS && end - start <= MAX_KNOWN_KEY_BYTES) KINDS.set(written, kind);
  return kind;
}

/** Caches the kinds of keys, because folding and matching each key would dominate the scan. */
const KINDS = new Map<string, MemberKind>();

function classifyKey(key: string): MemberKind {
  if (CONTENT.has(key)) return "content";
  if (CONTENT_LISTS.has(key)) return "content list";
  return namesModel(key) ? "names" : "other";
}

function* endOfValue(bytes: Buffer, start: number): Steps<number> {
  let open = 0;
  let pausedAt = start;
  let i = start;
  for (; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) i = endOfString(bytes, i + 1);
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) open += 1;
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      open -= 1;
      if (open === 0) return i;
    }
    if (i - pausedAt > STEP_BYTES) {
      pausedAt = i;
      yield;
    }
  }
  return i;
}

function decodeParameter(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

/**
 * Returns the text that the `*` of the pattern matches (empty without a `*`), or undefined if the name does not match.
 */
export function matchPattern(pattern: string, name: string): string | undefined {
  const star = pattern.indexOf("*");
  if (star < 0) return pattern === name ? "" : undefined;
  const prefix = pattern.slice(0, star);
  const suffix = pattern.slice(star + 1);
  const matches = name.length >= prefix.length + suffix.length && name.startsWith(prefix) && name.endsWith(suffix);
  return matches ? name.slice(prefix.length, name.length - suffix.length) : undefined;
}
