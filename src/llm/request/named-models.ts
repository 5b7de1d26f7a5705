/**
 * Which models a request names, in every place where some server reads one: `model` and the members that name alternatives
 * (`models`, `fallbacks`), models of tools, sessions and batched requests, fields of forms, the path, the query and headers. Key
 * lists, rules, limits and prices ask here, so they all judge the same names. Keys are compared without case and
 * separators, because servers differ in how they read them. A name too many costs a rejection, a name too few is a way around
 * a rule; so whatever is below a key that names models counts as a name. Only the conversation itself and JSON schemas, in
 * which users write what they like, are not searched.
 */

import { finish, type Steps } from "../../base/turns.ts";
import { GatewayError } from "../../core/errors.ts";
import { decodeKey, endOfString, foldCase } from "../../json/syntax.ts";

const QUOTE = 34;
const COMMA = 44;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;

/** Distinct names: a request has one or a few. */
const MAX_NAMES = 64;
/** No server knows longer keys, even with every letter escaped. */
const MAX_KEY_BYTES = 400;
/** The size of the key cache. */
const MAX_KNOWN_KEYS = 1024;
const MAX_KNOWN_KEY_BYTES = 64;
/** About 0.3 ms. */
const STEP_BYTES = 32 * 1024;

/** Suffixes of keys that name models, without case and separators: `draft_model`, `modelId`, `context_window_fallbacks`. */
const NAMING =
  /(?:(?:model|fallback)(?:s|ids?|names?|arns?|ur[il]s?|lists?|groups?|deployments?|alias(?:es)?|aliasmap|maps?|slugs?|versions?|identifiers?)?|^(?:azure)?(?:deployment|engine)(?:id|name)?|^preset)$/;

/** Members that hold conversation text or schemas. Other spellings of them are searched. */
const CONTENT: ReadonlySet<string> = new Set([
  ...["messages", "contents", "content", "system", "systemInstruction", "system_instruction", "instructions"],
  ...["parameters", "parametersJsonSchema", "input_schema", "inputSchema", "schema", "json_schema", "responseSchema"],
  ...["response_schema", "responseJsonSchema", "arguments"],
]);
/** The same where the value is a list; an object under these keys may be a whole request. */
const CONTENT_LISTS: ReadonlySet<string> = new Set(["input", "inputs", "prompt"]);

/** A model as a path segment; Azure, OpenAI's engines, Hugging Face, Triton, Vertex. Names may contain slashes. */
const IN_PATH =
  /\/(?:models|model|tunedModels|engines|deployments)\/(.+?)(?::[A-Za-z]+$|\/(?:v\d\w*|chat|completions|embeddings|responses|messages|images|audio|realtime|rerank|converse|converse-stream|invoke|invoke-with-response-stream|count-tokens|infer|generate|generate_stream|predictions|versions)(?:\/.*)?$|$)/;

/** Whether a member, field or parameter of this name names a model. */
export function namesModel(key: string): boolean {
  return NAMING.test(foldCase(key).replace(/[^a-z]/g, ""));
}

/** Whether a member or field of this name holds what a user writes. */
export function isContent(key: string): boolean {
  return CONTENT.has(key) || CONTENT_LISTS.has(key);
}

/** Names without repetition, in the order in which they were found. */
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
 * Adds the models that a JSON text names. `isCall`: it is an LLM request, so nested members count, too; of any other JSON
 * (`{"car": {"model": "T"}}`) only the outermost members do. The text must be balanced.
 */
export function* modelsInJson(bytes: Buffer, isCall: boolean, found: ModelNames): Steps<void> {
  /** Of each open container: whether it is an object, and whether the strings in it are names. */
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
        found.add(decodeKey(bytes.toString("utf8", i + 1, end)));
      i = end;
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      const isObject = byte === OPEN_BRACE;
      const isNaming = member === "names" || naming[depth - 1] === true;
      const isContent = member === "content" || (member === "content list" && !isObject);
      // The items of an outermost list are as outermost as an object alone.
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

/** Adds the models that parameters of a query, or fields of a form in the same notation, name. */
export function modelsInQuery(query: string, found: ModelNames): void {
  if (query === "") return;
  for (const part of query.split(/[&;]/)) {
    const equals = part.indexOf("=");
    if (equals > 0 && namesModel(decodeParameter(part.slice(0, equals))))
      found.add(decodeParameter(part.slice(equals + 1)));
  }
}

/**
 * Adds the models that headers name: `x-amzn-sagemaker-target-model`, `azureml-model-deployment`, or JSON with options of a
 * gateway behind this one (`x-portkey-config`). `pairs`: names in lower case and values in turn.
 */
export function modelsInHeaders(pairs: readonly string[], found: ModelNames): void {
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const name = pairs[i] as string;
    const value = (pairs[i + 1] as string).trim();
    // Browsers send the phone's model.
    const isNaming =
      (name.includes("model") || name.includes("fallback")) && !name.startsWith("sec-") && namesModel(name);
    if (value.startsWith("{") || value.startsWith("[")) {
      const text = isNaming ? `{"models":${value}}` : value;
      finish(modelsInJson(Buffer.from(text, "latin1"), true, found));
    } else if (isNaming) for (const one of value.split(",")) found.add(one.trim());
  }
}

/** Adds the model that a path names, for servers that receive the client's path. */
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
  const kind = kindOf(decodeKey(written));
  if (KINDS.size < MAX_KNOWN_KEYS && end - start <= MAX_KNOWN_KEY_BYTES) KINDS.set(written, kind);
  return kind;
}

/** Caches the meaning of keys, because the case-insensitive comparison would take most of the time. */
const KINDS = new Map<string, MemberKind>();

function kindOf(key: string): MemberKind {
  if (CONTENT.has(key)) return "content";
  if (CONTENT_LISTS.has(key)) return "content list";
  return namesModel(key) ? "names" : "other";
}

/** The offset of the bracket that closes the one at `start`. */
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

/** The part of `name` that the `*` of a pattern matches; undefined if the name does not match. */
export function matchPattern(pattern: string, name: string): string | undefined {
  const star = pattern.indexOf("*");
  if (star < 0) return pattern === name ? "" : undefined;
  const prefix = pattern.slice(0, star);
  const suffix = pattern.slice(star + 1);
  const matches = name.length >= prefix.length + suffix.length && name.startsWith(prefix) && name.endsWith(suffix);
  return matches ? name.slice(prefix.length, name.length - suffix.length) : undefined;
}
