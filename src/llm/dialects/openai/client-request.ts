/**
 * An OpenAI chat request in the common form. A member that is not understood is a loss.
 */
import { lookupTable } from "../../../base/lookup-table.ts";
import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerFormat, Conversation, Thinking, Tool, ToolChoice } from "../../canonical/conversation.ts";
import { list, members, optionalBoolean, optionalNumber, optionalText, text } from "../../canonical/fields.ts";
import type { Losses } from "../../canonical/losses.ts";
import { readSettings } from "../../canonical/settings.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import { TranslationError } from "../../canonical/translation-error.ts";
import { readMessages } from "./client-messages.ts";

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
  "verbosity",
  "service_tier",
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
});

export function readChatRequest(body: Members, { losses }: TranslationContext): Conversation {
  for (const [name, value] of Object.entries(body)) {
    if (KNOWN.has(name) || WITHOUT_EFFECT.has(name) || value === null || NEUTRAL[name]?.(value) === true) continue;
    losses.lose(name, value);
  }
  const { system, turns } = readMessages(list(body.messages, "messages"), losses);
  const n = optionalNumber(body.n, "n");
  const number = (name: string, neutral?: number) => {
    const value = optionalNumber(body[name], name);
    return { param: name, value: value === neutral ? undefined : value };
  };
  const tier = optionalText(body.service_tier, "service_tier");
  return {
    system,
    turns,
    tools: body.tools === undefined || body.tools === null ? [] : readTools(list(body.tools, "tools"), losses),
    toolChoice: readToolChoice(body.tool_choice),
    parallelTools: optionalBoolean(body.parallel_tool_calls, "parallel_tool_calls"),
    maxTokens:
      optionalNumber(body.max_completion_tokens, "max_completion_tokens") ??
      optionalNumber(body.max_tokens, "max_tokens"),
    stop: readStop(body.stop),
    user: optionalText(body.user, "user"),
    thinking: readThinking(body),
    format: readFormat(body.response_format),
    settings: readSettings({
      temperature: number("temperature"),
      topP: number("top_p"),
      topK: number("top_k"),
      seed: number("seed"),
      count: { param: "n", value: n === 1 ? undefined : n },
      presencePenalty: number("presence_penalty", 0),
      frequencyPenalty: number("frequency_penalty", 0),
      verbosity: { param: "verbosity", value: optionalText(body.verbosity, "verbosity") },
      serviceTier: { param: "service_tier", value: tier === "auto" || tier === "default" ? undefined : tier },
    }),
  };
}

/** `thinking` is Anthropic's; many chat clients send it. */
function readThinking(body: Members): Thinking | undefined {
  if (isMembers(body.thinking) && body.thinking.type !== "disabled") {
    const { type, budget_tokens: budget } = body.thinking;
    return {
      param: "thinking",
      effort: optionalText(body.reasoning_effort, "reasoning_effort"),
      budgetTokens: optionalNumber(budget, "thinking.budget_tokens"),
      isAdaptive: type === "adaptive",
    };
  }
  const effort = optionalText(body.reasoning_effort, "reasoning_effort");
  return effort === undefined ? undefined : { param: "reasoning_effort", effort };
}

function readTools(tools: readonly unknown[], losses: Losses): Tool[] {
  return tools.flatMap((value, i) => {
    const at = `tools[${i}]`;
    const tool = members(value, at);
    if (tool.type === "function") return [readTool(tool, at)];
    losses.lose(`${at}.type`, tool, "only function tools can be translated");
    return [];
  });
}

function readTool(tool: Members, at: string): Tool {
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

function readFormat(value: unknown): AnswerFormat | undefined {
  if (value === undefined || value === null) return undefined;
  const format = members(value, "response_format");
  switch (format.type) {
    case "text":
      return undefined;
    case "json_object":
      return { kind: "json", param: "response_format" };
    case "json_schema": {
      const described = members(format.json_schema, "response_format.json_schema");
      return {
        kind: "schema",
        param: "response_format",
        name: optionalText(described.name, "response_format.json_schema.name") ?? "answer",
        schema: members(described.schema, "response_format.json_schema.schema"),
      };
    }
    default:
      throw new TranslationError("response_format.type", "must be text, json_object or json_schema");
  }
}
