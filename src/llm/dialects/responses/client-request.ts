/**
 * An OpenAI Responses request in the common form. What OpenAI keeps between requests (`previous_response_id`,
 * conversations, background runs) cannot be had from another provider and is refused; other members that are not
 * understood are losses.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerFormat, Conversation, TextPart, Thinking, Tool, ToolChoice } from "../../canonical/conversation.ts";
import { list, members, optionalBoolean, optionalNumber, optionalText, text } from "../../canonical/fields.ts";
import { readSettings } from "../../canonical/settings.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import { TranslationError } from "../../canonical/translation-error.ts";
import { readInput } from "./client-input.ts";

const KNOWN = new Set([
  ...["model", "input", "instructions", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls"],
  ...["max_output_tokens", "temperature", "top_p", "reasoning", "text", "user", "service_tier"],
]);
/** Bookkeeping, caching, and what is answered beside the words. */
const WITHOUT_EFFECT = new Set([
  ...["metadata", "store", "include", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "truncation"],
  ...["client_metadata"],
]);
const STORED = new Set(["previous_response_id", "conversation", "prompt"]);

export function readResponsesRequest(body: Members, context: TranslationContext): Conversation {
  const { losses } = context;
  for (const [name, value] of Object.entries(body)) {
    if (value === null || KNOWN.has(name) || WITHOUT_EFFECT.has(name)) continue;
    if (STORED.has(name))
      throw new TranslationError(name, "is not supported by the provider of this model: send the whole input");
    if (name === "background" && value === true)
      throw new TranslationError(name, "background responses are not supported by the provider of this model");
    if (name !== "background" && !(name === "top_logprobs" && value === 0)) losses.lose(name, value);
  }
  const system: TextPart[] = [];
  const instructions = optionalText(body.instructions, "instructions");
  if (instructions) system.push({ kind: "text", text: instructions });
  const turns = readInput(body.input, system);
  const number = (name: string) => ({ param: name, value: optionalNumber(body[name], name) });
  const said = isMembers(body.text) ? body.text : {};
  const tier = optionalText(body.service_tier, "service_tier");
  return {
    system,
    turns,
    tools: body.tools === undefined || body.tools === null ? [] : readTools(list(body.tools, "tools"), context),
    toolChoice: readToolChoice(body.tool_choice),
    parallelTools: optionalBoolean(body.parallel_tool_calls, "parallel_tool_calls"),
    maxTokens: optionalNumber(body.max_output_tokens, "max_output_tokens"),
    stop: [],
    user: optionalText(body.user, "user"),
    thinking: readThinking(body.reasoning),
    format: readFormat(said.format),
    settings: readSettings({
      temperature: number("temperature"),
      topP: number("top_p"),
      verbosity: { param: "text.verbosity", value: optionalText(said.verbosity, "text.verbosity") },
      serviceTier: { param: "service_tier", value: tier === "auto" || tier === "default" ? undefined : tier },
    }),
  };
}

function readTools(tools: readonly unknown[], { losses, textTools }: TranslationContext): Tool[] {
  return tools.flatMap((value, i): Tool[] => {
    const at = `tools[${i}]`;
    const tool = members(value, at);
    if (tool.type === "function")
      return [
        {
          name: text(tool.name, `${at}.name`),
          description: optionalText(tool.description, `${at}.description`),
          parameters: isMembers(tool.parameters) ? tool.parameters : { type: "object", properties: {} },
          strict: optionalBoolean(tool.strict, `${at}.strict`),
        },
      ];
    // A tool that takes a text: others take an object with that text.
    if (tool.type === "custom") {
      const name = text(tool.name, `${at}.name`);
      textTools.add(name);
      return [{ name, description: textToolDescription(tool, at), parameters: TEXT_INPUT, strict: undefined }];
    }
    losses.lose(`${at}.type`, tool, `${JSON.stringify(tool.type)} is a tool of another provider`);
    return [];
  });
}

const TEXT_INPUT: Members = {
  type: "object",
  properties: { input: { type: "string", description: "The whole input of the tool." } },
  required: ["input"],
};

/** The grammar is the only thing that says how the text must look. */
function textToolDescription(tool: Members, at: string): string | undefined {
  const description = optionalText(tool.description, `${at}.description`);
  const grammar = isMembers(tool.format) && typeof tool.format.definition === "string" ? tool.format.definition : "";
  return grammar === "" ? description : `${description ?? ""}\n\nThe input must follow this grammar:\n${grammar}`;
}

function readToolChoice(value: unknown): ToolChoice | undefined {
  if (value === undefined || value === null) return undefined;
  if (value === "auto" || value === "none" || value === "required") return value;
  const choice = members(value, "tool_choice");
  if (choice.type === "function" || choice.type === "custom") return { name: text(choice.name, "tool_choice.name") };
  if (choice.type === "allowed_tools") return choice.mode === "required" ? "required" : "auto";
  throw new TranslationError("tool_choice.type", "must be function, custom or allowed_tools");
}

function readThinking(value: unknown): Thinking | undefined {
  const effort = isMembers(value) ? optionalText(value.effort, "reasoning.effort") : undefined;
  return effort === undefined ? undefined : { param: "reasoning.effort", effort };
}

function readFormat(value: unknown): AnswerFormat | undefined {
  if (value === undefined || value === null) return undefined;
  const format = members(value, "text.format");
  const param = "text.format";
  switch (format.type) {
    case "text":
      return undefined;
    case "json_object":
      return { kind: "json", param };
    case "json_schema":
      return {
        kind: "schema",
        param,
        name: optionalText(format.name, `${param}.name`) ?? "answer",
        schema: members(format.schema, `${param}.schema`),
      };
    default:
      throw new TranslationError(`${param}.type`, "must be text, json_object or json_schema");
  }
}
