/**
 * What must be known of an LLM request before it goes on: model, stream, options, and where they stand in the
 * bytes, so that one of them can be changed without parsing the rest. What is ambiguous is refused: the server
 * behind us might read it otherwise than we did.
 */
import { isUtf8 } from "node:buffer";
import { finish, type Steps } from "../../base/turns.ts";
import { parseValue } from "../../json/json.ts";
import type { JsonSpan } from "../../json/json-capture.ts";
import { jsonKeysOfAnyCase } from "../../json/json-keys.ts";
import { JsonScanner } from "../../json/json-scanner.ts";

export interface RequestScan {
  readonly model: string | undefined;
  readonly stream: boolean | undefined;
  readonly modelSpan: JsonSpan | undefined;
  readonly streamSpan: JsonSpan | undefined;
  readonly streamOptionsSpan: JsonSpan | undefined;
  /** The place right behind the opening brace. */
  readonly bodyStart: number;
  readonly isEmpty: boolean;
  /** A form with files: nothing but the model is read of it. */
  readonly isForm?: true;
  /** A member of the outermost object may lead the provider to another model. */
  readonly hasAlternatives?: boolean;
  /** The models that further fields of a form name. */
  readonly formModels?: readonly string[];
}

export type ScanResult =
  | { readonly ok: true; readonly scan: RequestScan }
  | { readonly ok: false; readonly reason: string };

/** Members by which a provider may go on to another model. */
const ALTERNATIVES = [
  ...["models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks"],
  ...["fallback_models", "preset"],
];
/** What decides about the call, what is guarded, and what is paid for: twice, it could be read in two ways. */
const KEYS = jsonKeysOfAnyCase(
  ...["model", "stream", "stream_options", "messages", "input", "prompt", "system", "instructions", "contents"],
  ...["tools", "n", "max_tokens", "max_completion_tokens", "max_output_tokens"],
  ...ALTERNATIVES,
);
const MAX_DEPTH = 128;
const MAX_VALUE_BYTES = 16 * 1024;
/** Names are short; this also bounds labels and keys that are made from them. */
const MAX_MODEL_CHARS = 256;
/** Brackets, numbers and blanks: 300,000 token numbers fit. A byte costs 10 ns, so these hold the loop for about 20 ms. */
const MAX_SYNTAX_BYTES = 2 * 1024 * 1024;
/** So that what has too many of them is not read to its end, and the loop goes on in between. */
const SCANNED_PIECE_BYTES = 64 * 1024;

/** `exact`: keys in another case are refused. `any`: they count; for servers that may or may not look at it. */
export type KeyCase = "exact" | "any";

/** What is wrong with a model's name. It may become part of a path, where dots would lead elsewhere. */
export function modelProblem(model: unknown): string | undefined {
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

/** The same in steps. */
export function* scanSteps(bytes: Buffer, keyCase: KeyCase = "exact"): Steps<ScanResult> {
  let model: Found | undefined;
  let stream: Found | undefined;
  let streamOptions: Found | undefined;
  let repeated: string | undefined;
  const others: string[] = [];
  const scanner = new JsonScanner({
    keys: KEYS,
    maxValueBytes: MAX_VALUE_BYTES,
    maxDepth: MAX_DEPTH,
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
    if (scanner.syntaxBytes > MAX_SYNTAX_BYTES) return refused("the JSON body has more than 2 MiB outside of strings");
  }
  if (scanner.invalid !== undefined) return refused(`the JSON body is ${scanner.invalid}`);
  if (!scanner.wellFormed || scanner.bodyStart < 0) return refused("the body must be one JSON object");
  if (bytes.includes(0)) return refused("the body contains NUL bytes; it must be UTF-8");
  if (!isUtf8(bytes)) return refused("the body is not valid UTF-8");
  if (repeated !== undefined) return refused(`the body has more than one '${repeated}'`);
  if (scanner.otherCase !== undefined && keyCase === "exact")
    return refused(`the key ${JSON.stringify(scanner.otherCase)} must be written in lower case`);

  const name = model && parseValue(model.bytes);
  const problem = model && modelProblem(name);
  if (problem !== undefined) return refused(problem);
  const streams = (stream && parseValue(stream.bytes)) ?? undefined;
  if (streams !== undefined && typeof streams !== "boolean") return refused("'stream' must be true or false");
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
  readonly span: JsonSpan;
  readonly bytes: Buffer | undefined;
}

function isBraceNext(bytes: Buffer, from: number): boolean {
  let i = from;
  while ((bytes[i] as number) <= 32) i += 1;
  return bytes[i] === 125;
}

function refused(reason: string): ScanResult {
  return { ok: false, reason };
}
