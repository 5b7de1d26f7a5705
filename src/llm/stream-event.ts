/**
 * What one event of a provider's stream says, in whichever dialect: usage, model, and the text that it adds.
 * Only members at their proper place count: a `usage` or `[DONE]` inside a model's text is text.
 */
import { isMembers, type Members } from "./json.ts";

/** A cheap test before parsing: an event without this holds no usage, one with it may. */
const MAY_HOLD_USAGE = /"(?:usage|usageMetadata|amazon-bedrock-invocationMetrics)"\s*:\s*\{/;

export function mayHoldUsage(data: string): boolean {
  return MAY_HOLD_USAGE.test(data);
}

/** The provider's own usage object. */
export function usageOf(event: Members): Members | undefined {
  for (const candidate of [
    event.usage,
    event.usageMetadata,
    event["amazon-bedrock-invocationMetrics"],
    inner(event.message, "usage"),
    inner(event.response, "usage"),
  ]) {
    if (isMembers(candidate)) return candidate;
  }
  return undefined;
}

export function modelOf(event: Members): string | undefined {
  for (const candidate of [
    event.model,
    event.modelVersion,
    inner(event.message, "model"),
    inner(event.response, "model"),
  ]) {
    if (typeof candidate === "string" && candidate !== "") return candidate;
  }
  return undefined;
}

/** Everything the model wrote in this event: text, reasoning, arguments of tools. */
export function textOf(event: Members): string {
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
