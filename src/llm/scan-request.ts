/**
 * What must be known of an LLM request before it goes on: model, stream, options, and where they stand in the
 * bytes, so that one of them can be changed without parsing the rest. What is ambiguous is refused: the server
 * behind us might read it otherwise than we did.
 */
import { isUtf8 } from "node:buffer";
import { parseMembers } from "./json.ts";
import { JsonScanner, type JsonSpan } from "./json-scanner.ts";

export interface RequestScan {
  readonly model: string | undefined;
  readonly stream: boolean | undefined;
  readonly modelSpan: JsonSpan | undefined;
  readonly streamSpan: JsonSpan | undefined;
  readonly streamOptionsSpan: JsonSpan | undefined;
  /** The place right behind the opening brace. */
  readonly bodyStart: number;
  readonly isEmpty: boolean;
}

export type ScanResult =
  | { readonly ok: true; readonly scan: RequestScan }
  | { readonly ok: false; readonly reason: string };

const MAX_DEPTH = 128;
const MAX_VALUE_BYTES = 16 * 1024;
/** Names are short; this also bounds labels and keys that are made from them. */
const MAX_MODEL_CHARS = 256;

export function scanRequest(bytes: Buffer): ScanResult {
  const spans = new Map<string, { span: JsonSpan; bytes: Buffer | undefined }>();
  let repeated: string | undefined;
  const scanner = new JsonScanner({
    keys: ["model", "stream", "stream_options"],
    maxValueBytes: MAX_VALUE_BYTES,
    maxDepth: MAX_DEPTH,
    value(key, span, valueBytes) {
      if (spans.has(key)) repeated = key;
      spans.set(key, { span, bytes: valueBytes });
    },
  });
  scanner.push(bytes);
  if (scanner.invalid !== undefined) return refused(`the JSON body is ${scanner.invalid}`);
  if (!scanner.wellFormed || scanner.bodyStart < 0) return refused("the body must be one JSON object");
  if (!isUtf8(bytes)) return refused("the body is not valid UTF-8");
  if (repeated !== undefined) return refused(`the body has more than one '${repeated}'`);

  const model = parseValue(spans.get("model")?.bytes);
  if (spans.has("model") && (typeof model !== "string" || model === "" || model.length > MAX_MODEL_CHARS)) {
    return refused("'model' must be a string of 1 to 256 characters");
  }
  const stream = parseValue(spans.get("stream")?.bytes) ?? undefined;
  if (stream !== undefined && typeof stream !== "boolean") return refused("'stream' must be true or false");
  return {
    ok: true,
    scan: {
      model: typeof model === "string" ? model : undefined,
      stream,
      modelSpan: spans.get("model")?.span,
      streamSpan: spans.get("stream")?.span,
      streamOptionsSpan: spans.get("stream_options")?.span,
      bodyStart: scanner.bodyStart,
      isEmpty: isBraceNext(bytes, scanner.bodyStart),
    },
  };
}

function isBraceNext(bytes: Buffer, from: number): boolean {
  let i = from;
  while ((bytes[i] as number) <= 32) i += 1;
  return bytes[i] === 125;
}

function parseValue(bytes: Buffer | undefined): unknown {
  if (bytes === undefined) return undefined;
  return parseMembers(`{"value":${bytes.toString("utf8")}}`)?.value;
}

function refused(reason: string): ScanResult {
  return { ok: false, reason };
}
