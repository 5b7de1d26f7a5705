/**
 * An Anthropic messages request in the common form. A member that is not understood is a loss.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerFormat, Conversation, Thinking, Tool, ToolChoice } from "../../canonical/conversation.ts";
import { list, members, optionalNumber, optionalText, text } from "../../canonical/fields.ts";
import type { Losses } from "../../canonical/losses.ts";
import { readSettings } from "../../canonical/settings.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import { TranslationError } from "../../canonical/translation-error.ts";
import { readSystem, readTurns } from "./client-content.ts";

const KNOWN = new Set([
  ...["model", "messages", "system", "max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences"],
  ...["tools", "tool_choice", "metadata", "thinking", "output_config", "output_format"],
]);
/** Hints about caching and bookkeeping: they change no answer. */
const WITHOUT_EFFECT = new Set(["cache_control", "service_tier"]);
const TOOL_KNOWN = new Set(["type", "name", "description", "input_schema", "strict", "cache_control"]);
/** When and how a tool's input is streamed: another provider streams as it does. */
const TOOL_WITHOUT_EFFECT = new Set(["eager_input_streaming", "defer_loading", "allowed_callers"]);

export function readMessagesRequest(body: Members, { losses }: TranslationContext): Conversation {
  for (const [name, value] of Object.entries(body))
    if (!KNOWN.has(name) && !WITHOUT_EFFECT.has(name) && value !== null) losses.lose(name, value);
  const system = readSystem(body.system, "system");
  const turns = readTurns(list(body.messages, "messages"), system, losses);
  const number = (name: string) => ({ param: name, value: optionalNumber(body[name], name) });
  const choice = isMembers(body.tool_choice) ? body.tool_choice : undefined;
  return {
    system,
    turns,
    tools: body.tools === undefined || body.tools === null ? [] : readTools(list(body.tools, "tools"), losses),
    toolChoice: readToolChoice(body.tool_choice),
    parallelTools: choice?.disable_parallel_tool_use === true && choice.type !== "none" ? false : undefined,
    maxTokens: optionalNumber(body.max_tokens, "max_tokens"),
    stop:
      body.stop_sequences === undefined || body.stop_sequences === null
        ? []
        : list(body.stop_sequences, "stop_sequences").map((one, i) => text(one, `stop_sequences[${i}]`)),
    user: isMembers(body.metadata) ? optionalText(body.metadata.user_id, "metadata.user_id") : undefined,
    thinking: readThinking(body),
    format: readFormat(body),
    settings: readSettings({ temperature: number("temperature"), topP: number("top_p"), topK: number("top_k") }),
  };
}

function readTools(tools: readonly unknown[], losses: Losses): Tool[] {
  return tools.flatMap((value, i) => {
    const at = `tools[${i}]`;
    const tool = members(value, at);
    if (tool.type !== undefined && tool.type !== null && tool.type !== "custom") {
      losses.lose(`${at}.type`, tool, `${JSON.stringify(tool.type)} is a tool of another provider`);
      return [];
    }
    for (const [name, member] of Object.entries(tool))
      if (!TOOL_KNOWN.has(name) && !TOOL_WITHOUT_EFFECT.has(name) && member !== null)
        losses.lose(`${at}.${name}`, member);
    return [
      {
        name: text(tool.name, `${at}.name`),
        description: optionalText(tool.description, `${at}.description`),
        parameters: members(tool.input_schema, `${at}.input_schema`),
        strict: tool.strict === true ? true : undefined,
        cacheControl: tool.cache_control ?? undefined,
      },
    ];
  });
}

function readToolChoice(value: unknown): ToolChoice | undefined {
  if (value === undefined || value === null) return undefined;
  const choice = members(value, "tool_choice");
  switch (choice.type) {
    case "auto":
      return "auto";
    case "any":
      return "required";
    case "none":
      return "none";
    case "tool":
      return { name: text(choice.name, "tool_choice.name") };
    default:
      throw new TranslationError("tool_choice.type", "must be auto, any, tool or none");
  }
}

function readThinking(body: Members): Thinking | undefined {
  const output = isMembers(body.output_config) ? body.output_config : {};
  const effort = optionalText(output.effort, "output_config.effort");
  const thinks = isMembers(body.thinking) && body.thinking.type !== "disabled" ? body.thinking : undefined;
  if (thinks === undefined) return effort === undefined ? undefined : { param: "output_config.effort", effort };
  return {
    param: "thinking",
    effort,
    budgetTokens: optionalNumber(thinks.budget_tokens, "thinking.budget_tokens"),
    isAdaptive: thinks.type === "adaptive",
  };
}

function readFormat(body: Members): AnswerFormat | undefined {
  const output = isMembers(body.output_config) ? body.output_config : {};
  const format = isMembers(output.format)
    ? output.format
    : isMembers(body.output_format)
      ? body.output_format
      : undefined;
  if (format === undefined) return undefined;
  const param = "output_config.format";
  if (format.type !== "json_schema") throw new TranslationError(`${param}.type`, "must be json_schema");
  return { kind: "schema", param, name: "answer", schema: members(format.schema, `${param}.schema`) };
}
