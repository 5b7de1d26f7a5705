/**
 * An OpenAI chat request as its meaning: instructions, turns of user and assistant, tools, settings. Every
 * translation to another provider starts from this, so that all understand a request alike. A member that is not
 * understood is refused by name.
 */
import { lookupTable } from "../../lib/text/lookup-table.ts";
import { isMembers, type Members } from "../wire/json.ts";
import { type Part, readMessages, type Turn } from "./chat-messages.ts";
import { compact, list, members, optionalBoolean, optionalNumber, optionalText, text } from "./fields.ts";
import { TranslationError } from "./translation.ts";

export interface ChatTool {
  readonly name: string;
  readonly description: string | undefined;
  readonly parameters: Members;
  readonly strict: boolean | undefined;
  readonly cacheControl?: unknown;
}

export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

/** Settings that some providers have and others do not. */
export interface ChatSettings {
  readonly temperature?: number | undefined;
  readonly top_p?: number | undefined;
  readonly top_k?: number | undefined;
  readonly seed?: number | undefined;
  readonly n?: number | undefined;
  readonly presence_penalty?: number | undefined;
  readonly frequency_penalty?: number | undefined;
  readonly reasoning_effort?: string | undefined;
  readonly thinking?: Members | undefined;
  readonly parallel_tool_calls?: boolean | undefined;
  readonly response_format?: ResponseFormat | undefined;
}

export type ResponseFormat =
  | { readonly kind: "json" }
  | { readonly kind: "schema"; readonly name: string; readonly schema: Members };

export interface ChatRequest {
  readonly system: readonly Extract<Part, { kind: "text" }>[];
  readonly turns: readonly Turn[];
  readonly tools: readonly ChatTool[];
  readonly toolChoice: ToolChoice | undefined;
  readonly maxTokens: number | undefined;
  readonly stop: readonly string[];
  readonly user: string | undefined;
  readonly settings: ChatSettings;
}

/** Read here, or by whoever sends the request. */
const KNOWN = new Set([
  "model",
  "messages",
  "stream",
  "stream_options",
  "tools",
  "tool_choice",
  "max_tokens",
  "max_completion_tokens",
  "stop",
  "user",
  "temperature",
  "top_p",
  "top_k",
  "seed",
  "n",
  "presence_penalty",
  "frequency_penalty",
  "reasoning_effort",
  "thinking",
  "parallel_tool_calls",
  "response_format",
]);
/** They say something about bookkeeping or caching and change no answer. */
const WITHOUT_EFFECT = new Set([
  "metadata",
  "store",
  "prompt_cache_key",
  "prompt_cache_retention",
  "safety_identifier",
]);
/** These mean the same as leaving them out. */
const NEUTRAL = lookupTable<(value: unknown) => boolean>({
  logprobs: (value) => value === false,
  top_logprobs: (value) => value === 0,
  logit_bias: (value) => isMembers(value) && Object.keys(value).length === 0,
  modalities: (value) => Array.isArray(value) && value.length === 1 && value[0] === "text",
  service_tier: (value) => value === "auto" || value === "default",
});

export function readChatRequest(body: Members): ChatRequest {
  for (const [name, value] of Object.entries(body)) {
    if (KNOWN.has(name) || WITHOUT_EFFECT.has(name) || value === null || NEUTRAL[name]?.(value) === true) continue;
    throw new TranslationError(name, "is not supported by the provider of this model");
  }
  const { system, turns } = readMessages(list(body.messages, "messages"));
  return {
    system,
    turns,
    tools: body.tools === undefined || body.tools === null ? [] : list(body.tools, "tools").map(readTool),
    toolChoice: readToolChoice(body.tool_choice),
    maxTokens:
      optionalNumber(body.max_completion_tokens, "max_completion_tokens") ??
      optionalNumber(body.max_tokens, "max_tokens"),
    stop: readStop(body.stop),
    user: optionalText(body.user, "user"),
    settings: readSettings(body),
  };
}

/** Refuses settings that this provider does not have. */
export function requireSettings(request: ChatRequest, supported: readonly (keyof ChatSettings)[]): void {
  for (const name of Object.keys(request.settings) as (keyof ChatSettings)[]) {
    if (!supported.includes(name)) throw new TranslationError(name, "is not supported by the provider of this model");
  }
}

function readSettings(body: Members): ChatSettings {
  const n = optionalNumber(body.n, "n");
  const presence = optionalNumber(body.presence_penalty, "presence_penalty");
  const frequency = optionalNumber(body.frequency_penalty, "frequency_penalty");
  const parallel = optionalBoolean(body.parallel_tool_calls, "parallel_tool_calls");
  return compact({
    temperature: optionalNumber(body.temperature, "temperature"),
    top_p: optionalNumber(body.top_p, "top_p"),
    top_k: optionalNumber(body.top_k, "top_k"),
    seed: optionalNumber(body.seed, "seed"),
    n: n === 1 ? undefined : n,
    presence_penalty: presence === 0 ? undefined : presence,
    frequency_penalty: frequency === 0 ? undefined : frequency,
    reasoning_effort: optionalText(body.reasoning_effort, "reasoning_effort"),
    thinking: body.thinking === undefined || body.thinking === null ? undefined : members(body.thinking, "thinking"),
    parallel_tool_calls: parallel === true ? undefined : parallel,
    response_format: readResponseFormat(body.response_format),
  }) as ChatSettings;
}

function readTool(value: unknown, i: number): ChatTool {
  const at = `tools[${i}]`;
  const tool = members(value, at);
  if (tool.type !== "function") throw new TranslationError(`${at}.type`, "only function tools can be translated");
  const described = members(tool.function, `${at}.function`);
  return {
    name: text(described.name, `${at}.function.name`),
    description: optionalText(described.description, `${at}.function.description`),
    parameters:
      described.parameters === undefined || described.parameters === null
        ? { type: "object", properties: {} }
        : members(described.parameters, `${at}.function.parameters`),
    strict: optionalBoolean(described.strict, `${at}.function.strict`),
    cacheControl: tool.cache_control ?? described.cache_control,
  };
}

function readToolChoice(value: unknown): ToolChoice | undefined {
  if (value === undefined || value === null) return undefined;
  if (value === "auto" || value === "none" || value === "required") return value;
  const choice = members(value, "tool_choice");
  if (choice.type !== "function") throw new TranslationError("tool_choice.type", "must be function");
  return { name: text(members(choice.function, "tool_choice.function").name, "tool_choice.function.name") };
}

function readStop(value: unknown): string[] {
  if (value === undefined || value === null) return [];
  if (typeof value === "string") return [value];
  return list(value, "stop").map((one, i) => text(one, `stop[${i}]`));
}

function readResponseFormat(value: unknown): ResponseFormat | undefined {
  if (value === undefined || value === null) return undefined;
  const format = members(value, "response_format");
  switch (format.type) {
    case "text":
      return undefined;
    case "json_object":
      return { kind: "json" };
    case "json_schema": {
      const described = members(format.json_schema, "response_format.json_schema");
      return {
        kind: "schema",
        name: optionalText(described.name, "response_format.json_schema.name") ?? "answer",
        schema: members(described.schema, "response_format.json_schema.schema"),
      };
    }
    default:
      throw new TranslationError("response_format.type", "must be text, json_object or json_schema");
  }
}
