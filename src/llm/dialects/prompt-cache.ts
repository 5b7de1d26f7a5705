/**
 * Adds prompt-cache markers for `ai.promptCaching`: Anthropic's `cache_control` and Bedrock's `cachePoint`. A request
 * that already has markers stays unchanged.
 */
import { isMembers, type Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import type { PromptCaching } from "../request/llm-call.ts";

/** English text averages four characters per token. */
const CHARS_PER_TOKEN = 4;
/** Excludes Claude models without prompt caching, because Bedrock rejects cache points for them. */
const CLAUDE_ON_BEDROCK = /anthropic\.claude-(?!3-(?:opus|sonnet|haiku)-|v2|instant)/;
const NOVA = /amazon\.nova/;

export function hasCacheMarks(format: Format, model: string): boolean {
  if (format === "messages") return true;
  if (format === "invoke") return CLAUDE_ON_BEDROCK.test(model);
  return format === "converse" && (CLAUDE_ON_BEDROCK.test(model) || NOVA.test(model));
}

export function markPrompt(body: Members, format: Format, model: string, caching: PromptCaching): Members {
  if (!hasCacheMarks(format, model) || isMarked(body)) return body;
  return format === "converse" ? markConverse(body, model, caching) : markMessages(body, caching);
}

function markMessages(body: Members, caching: PromptCaching): Members {
  const mark = { cache_control: { type: "ephemeral", ...(caching.ttl === "1h" ? { ttl: "1h" } : {}) } };
  const sizes = tokensUpToMarkers(body.tools, body.system, body.messages);
  const marked: Record<string, unknown> = { ...body };
  if (caching.tools && sizes.tools >= caching.minTokens && Array.isArray(body.tools))
    marked.tools = changeLast(body.tools, (tool) => ({ ...tool, ...mark }));
  if (caching.system && sizes.system >= caching.minTokens)
    marked.system = changeLast(textBlocks(body.system), (block) => (block.text === "" ? block : { ...block, ...mark }));
  if (caching.messages && sizes.all >= caching.minTokens && Array.isArray(body.messages))
    marked.messages = changeLast(body.messages, (message) => ({
      ...message,
      content: changeLast(textBlocks(message.content), (block) =>
        // Anthropic rejects a marker on thinking blocks and empty text.
        /thinking$/.test(String(block.type)) || block.text === "" ? block : { ...block, ...mark },
      ),
    }));
  return marked;
}

function markConverse(body: Members, model: string, caching: PromptCaching): Members {
  const point = { cachePoint: { type: "default", ...(caching.ttl === "1h" ? { ttl: "1h" } : {}) } };
  const { toolConfig, system, messages } = body;
  const tools = isMembers(toolConfig) ? toolConfig.tools : undefined;
  const sizes = tokensUpToMarkers(tools, system, messages);
  const marked: Record<string, unknown> = { ...body };
  if (
    caching.tools &&
    sizes.tools >= caching.minTokens &&
    isMembers(toolConfig) &&
    isFilled(tools) &&
    !NOVA.test(model)
  )
    marked.toolConfig = { ...toolConfig, tools: [...tools, point] };
  if (caching.system && sizes.system >= caching.minTokens && isFilled(system)) marked.system = [...system, point];
  if (caching.messages && sizes.all >= caching.minTokens && Array.isArray(messages))
    marked.messages = changeLast(messages, (message) =>
      isFilled(message.content) ? { ...message, content: [...message.content, point] } : message,
    );
  return marked;
}

/** Returns the estimated tokens up to each marker, because a cache entry covers everything before its marker. */
function tokensUpToMarkers(
  tools: unknown,
  system: unknown,
  messages: unknown,
): { tools: number; system: number; all: number } {
  const estimate = (part: unknown): number => (part === undefined ? 0 : JSON.stringify(part).length / CHARS_PER_TOKEN);
  const ofTools = estimate(tools);
  const ofSystem = ofTools + estimate(system);
  return { tools: ofTools, system: isEmpty(system) ? 0 : ofSystem, all: ofSystem + estimate(messages) };
}

function isEmpty(system: unknown): boolean {
  return system === undefined || system === null || system === "" || (Array.isArray(system) && system.length === 0);
}

/** Does not search strings, so that JSON quoted in a message does not count. */
function isMarked(body: Members): boolean {
  const { tools, toolConfig, system, messages, cache_control: whole } = body;
  const lists = [tools, isMembers(toolConfig) ? toolConfig.tools : undefined, system];
  const blocks = Array.isArray(messages) ? messages.map((one) => (isMembers(one) ? one.content : undefined)) : [];
  return (
    isSet(whole) ||
    [...lists, ...blocks].some(
      (list) =>
        Array.isArray(list) &&
        list.some((one) => isMembers(one) && (isSet(one.cache_control) || isSet(one.cachePoint))),
    )
  );
}

function isSet(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function textBlocks(content: unknown): readonly unknown[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content : [];
}

function isFilled(list: unknown): list is readonly unknown[] {
  return Array.isArray(list) && list.length > 0;
}

function changeLast(list: readonly unknown[], change: (last: Members) => Members): readonly unknown[] {
  const last = list.at(-1);
  return isMembers(last) ? [...list.slice(0, -1), change(last)] : list;
}
