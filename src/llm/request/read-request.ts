/**
 * Reads the model, the stream flag, and their positions from a JSON or multipart request, and finds all models that
 * a request names. Ambiguous requests, such as those with repeated keys, are rejected, because the provider might
 * parse them differently.
 */
import { isUtf8 } from "node:buffer";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish, type Steps } from "../../base/sliced-work.ts";
import { GatewayError } from "../../core/errors.ts";
import { JsonScanner, jsonKeysOfAnyCase } from "../../json/json-scanner.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { decodeString, endOfString, foldCase, type Span } from "../../json/syntax.ts";
import { estimateTextTokens } from "../usage/estimate-tokens.ts";
import { type Dialect, detectDialect } from "./dialect.ts";

const BODY = peerInput("client/llm-request");
const OPTION = peerInput("client/llm-option");

export interface RequestScan {
  readonly model: string | undefined;
  readonly stream: boolean | undefined;
  readonly modelSpan: Span | undefined;
  readonly streamSpan: Span | undefined;
  readonly streamOptionsSpan: Span | undefined;
  readonly bodyStart: number;
  readonly isEmpty: boolean;
  readonly isForm?: true;
  /** True if a top-level member may make the provider use another model. */
  readonly hasAlternatives?: boolean;
  readonly formModels?: readonly string[];
  /** Holds the size and the estimated tokens of the form's fields that are not files. */
  readonly formText?: { readonly bytes: number; readonly tokens: number };
}

type ScanResult = { readonly ok: true; readonly scan: RequestScan } | { readonly ok: false; readonly reason: string };

/** These members let a provider fall back to another model. */
const ALTERNATIVES = [
  ...["models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks"],
  ...["fallback_models", "preset"],
];
/** These members affect routing, guards, or cost, so a repeated member would be ambiguous. */
const KEYS = jsonKeysOfAnyCase(
  ...["model", "stream", "stream_options", "messages", "input", "prompt", "system", "instructions", "contents"],
  ...["tools", "n", "max_tokens", "max_completion_tokens", "max_output_tokens"],
  ...ALTERNATIVES,
);
const MAX_VALUE_BYTES = 16 * 1024;
const MAX_MODEL_CHARS = 256;
/** Limits the bytes outside strings, which are the slowest to scan. */
const MAX_SYNTAX_BYTES = 2 * 1024 * 1024;
/** The scanner checks `MAX_SYNTAX_BYTES` after each chunk of this size. */
const SCANNED_PIECE_BYTES = 64 * 1024;

/** `exact` rejects keys that differ in case. `any` accepts them, for servers that may ignore case. */
type KeyCase = "exact" | "any";

/** Model names may become path segments, so dot segments are rejected. */
function modelProblem(model: unknown): string | undefined {
  if (typeof model !== "string" || model === "" || model.length > MAX_MODEL_CHARS)
    return "'model' must be a string of 1 to 256 characters";
  if (!model.isWellFormed()) return "'model' is not valid Unicode";
  return /(?:^|[/\\])\.{1,2}(?:[/\\]|$)/.test(model)
    ? "'model' must not contain '.' or '..' as a path segment"
    : undefined;
}

export function scanRequest(bytes: Buffer, keyCase: KeyCase = "exact"): ScanResult {
  return finish(scanSteps(bytes, keyCase));
}

export function* scanSteps(bytes: Buffer, keyCase: KeyCase = "exact"): Steps<ScanResult> {
  let model: Found | undefined;
  let stream: Found | undefined;
  let streamOptions: Found | undefined;
  let repeated: string | undefined;
  const others: string[] = [];
  const scanner = new JsonScanner({
    keys: KEYS,
    input: BODY,
    maxValueBytes: MAX_VALUE_BYTES,
    value(key, span, valueBytes) {
      const found = { span, bytes: valueBytes };
      if (key === "model") {
        if (model) repeated = key;
        model = found;
      } else if (key === "stream") {
        if (stream) repeated = key;
        stream = found;
      } else if (key === "stream_options") {
        if (streamOptions) repeated = key;
        streamOptions = found;
      } else if (others.includes(key)) repeated = key;
      else others.push(key);
    },
  });
  for (let from = 0; from < bytes.length; from += SCANNED_PIECE_BYTES) {
    if (from > 0) yield;
    scanner.push(bytes.subarray(from, from + SCANNED_PIECE_BYTES));
    if (scanner.syntaxBytes > MAX_SYNTAX_BYTES) return rejected("the JSON body has more than 2 MiB outside of strings");
  }
  if (scanner.invalid !== undefined) return rejected(`the JSON body is ${scanner.invalid}`);
  if (!scanner.wellFormed || scanner.bodyStart < 0) return rejected("the body must be one JSON object");
  if (bytes.includes(0)) return rejected("the body contains NUL bytes; it must be UTF-8");
  if (!isUtf8(bytes)) return rejected("the body is not valid UTF-8");
  if (repeated !== undefined) return rejected(`the body has more than one '${repeated}'`);
  if (scanner.otherCase !== undefined && keyCase === "exact")
    return rejected(`the key ${JSON.stringify(scanner.otherCase)} must be written in lower case`);

  const name = model && tryReadJson(OPTION, model.bytes);
  const problem = model && modelProblem(name);
  if (problem !== undefined) return rejected(problem);
  const streams = (stream && tryReadJson(OPTION, stream.bytes)) ?? undefined;
  if (streams !== undefined && typeof streams !== "boolean") return rejected("'stream' must be true or false");
  return {
    ok: true,
    scan: {
      model: typeof name === "string" ? name : undefined,
      stream: streams,
      modelSpan: model?.span,
      streamSpan: stream?.span,
      streamOptionsSpan: streamOptions?.span,
      bodyStart: scanner.bodyStart,
      isEmpty: isBraceNext(bytes, scanner.bodyStart),
      hasAlternatives: others.length > 0 && others.some((key) => ALTERNATIVES.includes(key)),
    },
  };
}

interface Found {
  readonly span: Span;
  readonly bytes: Buffer | undefined;
}

function isBraceNext(bytes: Buffer, from: number): boolean {
  let i = from;
  while ((bytes[i] as number) <= 32) i += 1;
  return bytes[i] === 125;
}

function rejected(reason: string): ScanResult {
  return { ok: false, reason };
}

const BOUNDARY =
  /^multipart\/form-data\s*;(?:[^"]*;)?\s*boundary=(?:"([^"\\]{1,70})"|([^\s;,"'()<>@:\\/[\]?={}]{1,70}))\s*(?:;|$)/i;
const BLANK_LINE = Buffer.from("\r\n\r\n");
const MAX_PARTS = peerInput("client/llm-form").maxItems;
const MAX_PART_HEAD_BYTES = 4096;
/** JSON fields of forms hold sessions or options, which are short. */
const MAX_JSON_FIELD_BYTES = 64 * 1024;
const [CR, LF, DASH] = [13, 10, 45];

/** Excludes control characters and line folding. */
const HEAD_LINE = /^([\w!#$%&'*+.^`|~-]+):[ \t]*([ -~\x80-\xff]*)$/;
/**
 * Accepts each parameter at most once, in any order. Parsers disagree on whether `\"` ends a quoted string, so it is
 * allowed only in file names in which no parser could find another parameter.
 */
const DISPOSITION =
  /^form-data((?:; ?name=(?:"[\w.[\]-]+"|[\w.[\]-]+)|; ?filename=(?:"(?:[^"\\]|\\(?!"))*"|"(?:[^"\\;=]|\\[^";=])*\\"(?:[^"\\;=]|\\[^;=])*"|[\w.-]+)|; ?filename\*=[\w.%'!#$&+^`|~-]+)+)$/i;
const PARAMETER = /; ?(name|filename\*?)=(?:"([^"]*)"|([^;]+))/gi;
const PLAIN_TEXT = /^text\/plain(?:\s*;\s*charset="?(?:utf-8|us-ascii)"?)?$/i;

interface Part {
  readonly name: string;
  readonly isFile: boolean;
  readonly isPlain: boolean;
}

export function scanForm(bytes: Buffer, contentType: string): ScanResult {
  const formText = { bytes: 0, tokens: 0 };
  const match = BOUNDARY.exec(contentType);
  const boundary = match?.[1] ?? match?.[2];
  if (boundary === undefined || contentType.toLowerCase().split("boundary").length !== 2)
    return rejected("the form has no boundary, or not a plain one");
  const delimiter = Buffer.from(`--${boundary}`, "latin1");
  const others = new ModelNames();
  const fields = new Map<string, { text: string; start: number; end: number }>();
  if (bytes.indexOf(delimiter) !== 0) return rejected("the form does not begin with its boundary");
  let at = 0;
  for (let parts = 0; !isLast(bytes, at + delimiter.length); parts++) {
    if (parts >= MAX_PARTS) return rejected(`the form has more than ${MAX_PARTS} parts`);
    const start = at + delimiter.length;
    const blank = bytes.indexOf(BLANK_LINE, start);
    // The boundary must not occur inside a value, so that all parsers agree on the end of each part.
    const next = bytes.indexOf(delimiter, start);
    const end = next - 2;
    if (!isLineEnd(bytes, start) || blank < 0 || next < 0 || !isLineEnd(bytes, end) || blank + BLANK_LINE.length > end)
      return rejected("the form is not valid");
    if (blank - start > MAX_PART_HEAD_BYTES) return rejected("a part of the form has too long a head");
    const part = readHead(bytes.toString("latin1", start + 2, blank));
    if (part === undefined) return rejected("a part of the form has a head that is not plain");
    const { isFile, isPlain } = part;
    const value = { start: blank + BLANK_LINE.length, end };
    if (!isFile) {
      formText.bytes += end - value.start;
      formText.tokens += estimateTextTokens(bytes, value.start, end);
    }
    const name = foldCase(part.name);
    if (name === "model" || name === "stream" || name === "_charset_") {
      if (name !== part.name) return rejected(`the field ${JSON.stringify(part.name)} must be written in lower case`);
      if (isFile || !isPlain || name === "_charset_") return rejected(`'${name}' must be a plain text`);
      if (fields.has(name)) return rejected(`the form has more than one '${name}'`);
      fields.set(name, { text: bytes.toString("utf8", value.start, value.end), ...value });
    } else if (namesModel(part.name)) {
      if (isFile || !isPlain) return rejected(`${JSON.stringify(part.name)} must be a plain text`);
      others.add(bytes.toString("utf8", value.start, value.end).trim());
    } else if (!isContent(part.name) && isJson(bytes, value.start, end)) {
      if (end - value.start > MAX_JSON_FIELD_BYTES)
        return rejected(`the field ${JSON.stringify(part.name)} is too large`);
      finish(modelsInJson(bytes.subarray(value.start, end), true, others));
    }
    at = next;
  }
  if (!endsHere(bytes, at + delimiter.length + 2)) return rejected("the form goes on after its end");
  const model = fields.get("model");
  const problem = model && (/[\r\n]/.test(model.text) ? "'model' is not valid" : modelProblem(model.text));
  if (problem !== undefined) return rejected(problem);
  const stream = fields.get("stream");
  const scan: RequestScan = {
    model: model?.text,
    stream: stream && stream.text.toLowerCase() === "true",
    modelSpan: model && { start: model.start, end: model.end },
    streamSpan: undefined,
    streamOptionsSpan: undefined,
    bodyStart: 0,
    isEmpty: false,
    isForm: true,
    formModels: others.names,
    formText,
  };
  return { ok: true, scan };
}

function isJson(bytes: Buffer, start: number, end: number): boolean {
  let at = start;
  while (at < end && (bytes[at] as number) <= 32) at += 1;
  return at < end && (bytes[at] === OPEN_BRACE || bytes[at] === OPEN_BRACKET);
}

function isLast(bytes: Buffer, at: number): boolean {
  return bytes[at] === DASH && bytes[at + 1] === DASH;
}

function isLineEnd(bytes: Buffer, at: number): boolean {
  return bytes[at] === CR && bytes[at + 1] === LF;
}

function endsHere(bytes: Buffer, at: number): boolean {
  return at === bytes.length || (isLineEnd(bytes, at) && at + 2 === bytes.length);
}

function readHead(head: string): Part | undefined {
  const lines = new Map<string, string>();
  for (const line of head.split("\r\n")) {
    const [, name, value] = HEAD_LINE.exec(line) ?? [];
    if (name === undefined || value === undefined || lines.has(name.toLowerCase())) return undefined;
    lines.set(name.toLowerCase(), value.trim());
  }
  const [, written] = DISPOSITION.exec(lines.get("content-disposition") ?? "") ?? [];
  if (written === undefined) return undefined;
  const parameters = new Map<string, string>();
  for (const [, name = "", quoted, plain] of written.matchAll(PARAMETER)) {
    if (parameters.has(name.toLowerCase())) return undefined;
    parameters.set(name.toLowerCase(), quoted ?? plain ?? "");
  }
  const name = parameters.get("name");
  if (name === undefined) return undefined;
  const coding = lines.get("content-transfer-encoding") ?? "binary";
  return {
    name,
    isFile: parameters.size > 1,
    isPlain: /^(?:binary|[78]bit)$/i.test(coding) && PLAIN_TEXT.test(lines.get("content-type") ?? "text/plain"),
  };
}

type RequestReading =
  | {
      readonly ok: true;
      readonly dialect: Dialect;
      readonly scan: RequestScan;
      readonly model: string | undefined;
      readonly streaming: boolean;
    }
  | { readonly ok: false; readonly dialect: Dialect; readonly reason: string };

export function* readingSteps(path: string, bytes: Buffer, keyCase: KeyCase): Steps<RequestReading> {
  const dialect = detectDialect(path);
  const scanned = yield* scanSteps(bytes, keyCase);
  if (!scanned.ok) return { ok: false, dialect, reason: scanned.reason };
  const { scan } = scanned;
  const reason = conflict(dialect, scan);
  if (reason !== undefined) return { ok: false, dialect, reason };
  return {
    ok: true,
    dialect,
    scan,
    model: dialect.pathModel ?? scan.model,
    streaming: dialect.pathStream ?? scan.stream ?? false,
  };
}

function conflict({ pathModel, pathStream, format }: Dialect, scan: RequestScan): string | undefined {
  if (pathModel === undefined) return undefined;
  const problem = modelProblem(pathModel);
  if (problem !== undefined) return problem;
  if (scan.model !== undefined && withoutCollection(scan.model) !== pathModel)
    return "'model' in the body is not the model in the path";
  // Claude on Vertex AI also has `stream` in the body.
  return format === "messages" && scan.stream !== undefined && scan.stream !== pathStream
    ? "'stream' in the body is not what the path asks for"
    : undefined;
}

/** Google's bodies may name a model with its collection or its full resource name. */
export function withoutCollection(model: string): string {
  return model.replace(/^(?:.*\/)?(?:models|tunedModels)\//, "");
}

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

function isContent(key: string): boolean {
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
