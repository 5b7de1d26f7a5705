/**
 * Visits every text that a person or a model wrote in a parsed request or answer, in any dialect, and puts what the
 * visitor makes of it in its place. Words of the protocol, names, ids and encoded data are not texts.
 */
import { putMember } from "../../lib/text/put-member.ts";
import { isMembers, type Members } from "../wire/json.ts";

const PROMPT_MEMBERS = [
  "messages",
  "input",
  "prompt",
  "system",
  "instructions",
  "contents",
  "systemInstruction",
  "system_instruction",
  // Embeddings, ranking and models of Bedrock that have words of their own.
  "content",
  "requests",
  "query",
  "documents",
  "inputText",
  "inputs",
];
const ANSWER_MEMBERS = [
  "choices",
  "content",
  "candidates",
  "output",
  "delta",
  "content_block",
  "part",
  "item",
  "response",
  "text",
];

/** Strings under these names are not written by anybody. */
const NOT_TEXT = new Set([
  "role",
  "type",
  "id",
  "name",
  "model",
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
  "thoughtSignature",
  "thought_signature",
  "data",
  "bytes",
  "file_data",
  "url",
  "file_uri",
  "fileUri",
  "uri",
  "file_id",
  "status",
  "finish_reason",
  "finishReason",
  "stop_reason",
  "stopReason",
  "object",
  "ttl",
  "item_id",
  "phase",
]);

export function mapPromptTexts(body: Members, map: (text: string) => string): Members {
  return mapMembers(body, PROMPT_MEMBERS, map);
}

export function mapAnswerTexts(body: Members, map: (text: string) => string): Members {
  return mapMembers(body, ANSWER_MEMBERS, map);
}

/** The same texts in the same order, for those who only look. */
export function eachPromptText(body: Members, visit: (text: string) => void): void {
  for (const name of PROMPT_MEMBERS) if (Object.hasOwn(body, name)) visitValue(body[name], visit);
}

export function eachAnswerText(body: Members, visit: (text: string) => void): void {
  for (const name of ANSWER_MEMBERS) if (Object.hasOwn(body, name)) visitValue(body[name], visit);
}

function visitValue(value: unknown, visit: (text: string) => void): void {
  if (typeof value === "string") visit(value);
  else if (Array.isArray(value)) for (const item of value) visitValue(item, visit);
  else if (isMembers(value))
    for (const [key, member] of Object.entries(value))
      if (typeof member !== "string" || !NOT_TEXT.has(key)) visitValue(member, visit);
}

function mapMembers(body: Members, names: readonly string[], map: (text: string) => string): Members {
  const changed: Record<string, unknown> = { ...body };
  for (const name of names) if (Object.hasOwn(body, name)) changed[name] = mapValue(body[name], map);
  return changed;
}

function mapValue(value: unknown, map: (text: string) => string): unknown {
  if (typeof value === "string") return map(value);
  if (Array.isArray(value)) return value.map((item) => mapValue(item, map));
  if (!isMembers(value)) return value;
  const changed: Record<string, unknown> = {};
  for (const [key, member] of Object.entries(value)) {
    const mapped = typeof member === "string" && NOT_TEXT.has(key) ? member : mapValue(member, map);
    putMember(changed, key, mapped);
  }
  return changed;
}
