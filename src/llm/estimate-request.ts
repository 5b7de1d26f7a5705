/**
 * The estimated input of an LLM request, in whichever dialect it is written: all text below the members that carry
 * the prompt, a constant per message, the definitions of tools, and a flat price per image or file.
 * One pass over the bytes, no tree; encoded images are skipped, not read.
 */
import { estimateTextTokens } from "./estimate.ts";
import { endOfString } from "./json-string.ts";

/** Members of the outermost object that become input. */
const PROMPT = new Set([
  "messages",
  "input",
  "prompt",
  "system",
  "instructions",
  "contents",
  "systemInstruction",
  "system_instruction",
]);
/** Their property names become input as well. */
const DEFINITIONS = new Set(["tools", "functions", "toolConfig", "response_format", "text", "output_config"]);
/** Words of the protocol, not of the prompt. */
const SILENT = new Set([
  "role",
  "type",
  "id",
  "tool_call_id",
  "call_id",
  "tool_use_id",
  "toolUseId",
  "mime_type",
  "mimeType",
  "media_type",
  "format",
  "detail",
  "signature",
  "ttl",
]);
const MEDIA = new Set(["data", "bytes", "file_data", "url", "image_url", "file_uri", "fileUri", "uri", "file_id"]);

/** Providers put a few marks around every message. */
const MESSAGE_TOKENS = 4;
/** An image of ordinary size: providers charge 85 to 1,600. */
const MEDIA_TOKENS = 1000;
/** What every request costs, whatever it says. */
const BASE_TOKENS = 3;
/** Longer strings are not decoded first: escapes are rare enough in them. */
const DECODED_BYTES = 64 * 1024;

const QUOTE = 34;
const BACKSLASH = 92;

export function estimateRequestTokens(bytes: Buffer): number {
  let tokens = BASE_TOKENS;
  let depth = 0;
  let topKey = "";
  let key = "";
  let i = 0;
  while (i < bytes.length) {
    const byte = bytes[i] as number;
    if (byte === 123 || byte === 91) depth += 1;
    else if (byte === 125 || byte === 93) depth -= 1;
    if (byte !== QUOTE) {
      i += 1;
      continue;
    }
    const start = i + 1;
    const end = endOfString(bytes, start);
    i = skipBlanks(bytes, end + 1);
    if (bytes[i] === 58) {
      // Keys are short: a longer one is nobody's word.
      key = end - start <= 64 ? bytes.toString("latin1", start, end) : "";
      if (depth === 1) topKey = key;
      else if (DEFINITIONS.has(topKey)) tokens += 1 + estimateTextTokens(bytes, start, end);
      if (key === "role" && depth > 1) tokens += MESSAGE_TOKENS;
    } else if (PROMPT.has(topKey) || DEFINITIONS.has(topKey)) tokens += valueTokens(bytes, start, end, key);
  }
  return Math.ceil(tokens);
}

function valueTokens(bytes: Buffer, start: number, end: number, key: string): number {
  if (SILENT.has(key)) return 0;
  if (MEDIA.has(key)) return MEDIA_TOKENS;
  const size = end - start;
  if (size > DECODED_BYTES || !bytes.subarray(start, end).includes(BACKSLASH))
    return estimateTextTokens(bytes, start, end);
  try {
    return estimateTextTokens(Buffer.from(JSON.parse(`"${bytes.toString("utf8", start, end)}"`) as string));
  } catch {
    return estimateTextTokens(bytes, start, end);
  }
}

function skipBlanks(bytes: Buffer, from: number): number {
  let i = from;
  while (i < bytes.length && (bytes[i] as number) <= 32) i += 1;
  return i;
}
