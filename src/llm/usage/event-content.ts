/**
 * Reads usage, model, and output text from one stream event in any dialect. Only fields at their documented positions
 * count, so `usage` inside the model's output is ignored.
 */
import { isMembers, type Members } from "../../json/json.ts";

const MAY_HOLD_USAGE = /"(?:usage|usageMetadata|amazon-bedrock-invocationMetrics)"\s*:\s*\{/;

export function mayHoldUsage(data: string): boolean {
  return MAY_HOLD_USAGE.test(data);
}

/** The pattern omits the quote, because `indexOf` searches for the first byte, and quotes are frequent in JSON. */
const NAME = Buffer.from("usage");
const QUOTE = 34;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const COMMA = 44;
const LF = 10;
const CR = 13;
/** This distance covers the suffix `Metadata`, the quote, the colon, and some whitespace. */
const NAME_TO_BRACE_BYTES = 24;

const BLANK_LINE = Buffer.from("\n\n");

/**
 * Searches raw server-sent events for a `usage` or `usageMetadata` object without decoding them. Returns the offset of
 * the first event that may hold usage, or -1. `bytes` must start with an event.
 */
export function usageEventAt(bytes: Buffer): number {
  for (let at = bytes.indexOf(NAME); at >= 0; at = bytes.indexOf(NAME, at + NAME.length)) {
    if (bytes[at - 1] !== QUOTE) continue;
    const from = at + NAME.length;
    const stop = Math.min(bytes.length, from + NAME_TO_BRACE_BYTES);
    for (let i = from; i < stop; i++) {
      if (bytes[i] === OPEN_BRACE) return startOfEvent(bytes, at);
      // Many servers send `"usage": null` in each event. The next brace then belongs to another member or event.
      if (bytes[i] === COMMA || bytes[i] === CLOSE_BRACE) break;
    }
  }
  return -1;
}

/** Recognizes only LF line endings. With other line endings, the result can be the start of an earlier event. */
function startOfEvent(bytes: Buffer, at: number): number {
  const blank = bytes.lastIndexOf(BLANK_LINE, at);
  return blank < 0 ? 0 : blank + BLANK_LINE.length;
}

/**
 * Returns the length of `bytes` if it is at most `max`, and otherwise the length of the complete events within the
 * first `max` bytes. `bytes` must start with an event.
 */
export function wholeEvents(bytes: Buffer, max: number): number {
  if (bytes.length <= max) return bytes.length;
  const blank = bytes.lastIndexOf(BLANK_LINE, max - BLANK_LINE.length);
  return blank < 0 ? 0 : blank + BLANK_LINE.length;
}

export function endsEvent(bytes: Buffer): boolean {
  const { length } = bytes;
  if (bytes[length - 1] !== LF) return false;
  return bytes[length - 2] === LF || (bytes[length - 2] === CR && bytes[length - 3] === LF);
}

export function findUsage(event: Members): Members | undefined {
  const usage =
    event.usage ??
    event.usageMetadata ??
    event["amazon-bedrock-invocationMetrics"] ??
    inner(event.message, "usage") ??
    inner(event.response, "usage");
  return isMembers(usage) ? usage : undefined;
}

export function findModel(event: Members): string | undefined {
  const model = event.model ?? event.modelVersion ?? inner(event.message, "model") ?? inner(event.response, "model");
  return typeof model === "string" && model !== "" ? model : undefined;
}

/** The text includes reasoning and tool arguments. */
export function findOutputText(event: Members): string {
  let text = "";
  for (const choice of list(event.choices)) {
    const delta = isMembers(choice.delta) ? choice.delta : isMembers(choice.message) ? choice.message : choice;
    text += string(delta.content) + string(delta.text) + string(delta.reasoning_content) + string(delta.refusal);
    for (const call of list(delta.tool_calls))
      text += string(inner(call.function, "name")) + string(inner(call.function, "arguments"));
  }
  for (const candidate of list(event.candidates)) {
    for (const part of list(inner(candidate.content, "parts"))) {
      text += string(part.text);
      if (isMembers(part.functionCall)) text += JSON.stringify(part.functionCall);
    }
  }
  if (typeof event.delta === "string") text += event.delta;
  else if (isMembers(event.delta)) {
    const { delta } = event;
    text += string(delta.text) + string(delta.partial_json) + string(delta.thinking);
    text += string(inner(delta.toolUse, "input")) + string(inner(delta.reasoningContent, "text"));
  }
  return text;
}

function inner(value: unknown, key: string): unknown {
  return isMembers(value) ? value[key] : undefined;
}

function list(value: unknown): readonly Members[] {
  return Array.isArray(value) ? value.filter(isMembers) : [];
}

function string(value: unknown): string {
  return typeof value === "string" ? value : "";
}
