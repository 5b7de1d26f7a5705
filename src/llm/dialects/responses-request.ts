/**
 * Parses OpenAI Responses requests into the canonical format. State that OpenAI stores between requests is not
 * available to other providers, so parameters that refer to it are rejected.
 */
import { isMembers, type Members } from "../../json/json.ts";
import {
  type ContentPart,
  type Conversation,
  list,
  members,
  NOT_SUPPORTED,
  optionalBoolean,
  optionalList,
  optionalNumber,
  optionalText,
  type Part,
  parseArguments,
  parseDataUrl,
  type ResponseFormat,
  readSettings,
  readSignature,
  type TextPart,
  type Thinking,
  type Tool,
  type ToolChoice,
  type ToolNames,
  TranslationError,
  type Turn,
  TurnList,
  text,
} from "./conversation.ts";
import type { TranslationContext } from "./translation.ts";

const KNOWN = new Set([
  ...["model", "input", "instructions", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls"],
  ...["max_output_tokens", "temperature", "top_p", "reasoning", "text", "user", "service_tier"],
]);
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
  // The tools are read first, because calls in the input use their flat names.
  const tools = readTools(optionalList(body.tools, "tools"), context);
  const turns = readInput(body.input, system, context);
  const number = (name: string) => ({ param: name, value: optionalNumber(body[name], name) });
  const textOptions = isMembers(body.text) ? body.text : {};
  const tier = optionalText(body.service_tier, "service_tier");
  return {
    system,
    turns,
    tools,
    toolChoice: readToolChoice(body.tool_choice, context.toolNames),
    parallelTools: optionalBoolean(body.parallel_tool_calls, "parallel_tool_calls"),
    maxTokens: optionalNumber(body.max_output_tokens, "max_output_tokens"),
    stop: [],
    user: optionalText(body.user, "user"),
    thinking: readThinking(body.reasoning),
    format: readFormat(textOptions.format),
    settings: readSettings({
      temperature: number("temperature"),
      topP: number("top_p"),
      verbosity: { param: "text.verbosity", value: optionalText(textOptions.verbosity, "text.verbosity") },
      serviceTier: { param: "service_tier", value: tier === "auto" || tier === "default" ? undefined : tier },
    }),
  };
}

function readTools(tools: readonly unknown[], context: TranslationContext): Tool[] {
  for (const tool of tools)
    if (isMembers(tool) && tool.type !== "namespace" && typeof tool.name === "string")
      context.toolNames.reserve(tool.name);
  return tools.flatMap((value, i): Tool[] => {
    const at = `tools[${i}]`;
    const tool = members(value, at);
    return tool.type === "namespace" ? readNamespace(tool, at, context) : readTool(tool, at, undefined, context);
  });
}

/** A tool without a description gets that of its namespace. */
function readNamespace(namespace: Members, at: string, context: TranslationContext): Tool[] {
  const name = text(namespace.name, `${at}.name`);
  const shared = optionalText(namespace.description, `${at}.description`);
  return list(namespace.tools, `${at}.tools`)
    .flatMap((value, i) => readTool(members(value, `${at}.tools[${i}]`), `${at}.tools[${i}]`, name, context))
    .map((tool) => ({ ...tool, description: tool.description ?? shared }));
}

function readTool(
  tool: Members,
  at: string,
  namespace: string | undefined,
  { losses, toolNames }: TranslationContext,
): Tool[] {
  if (tool.type !== "function" && tool.type !== "custom") {
    losses.lose(`${at}.type`, tool, `${JSON.stringify(tool.type)} is a tool of another provider`);
    return [];
  }
  const own = text(tool.name, `${at}.name`);
  const name = namespace === undefined ? own : toolNames.flatten(namespace, own);
  if (tool.type === "function")
    return [
      {
        name,
        description: optionalText(tool.description, `${at}.description`),
        parameters: isMembers(tool.parameters) ? tool.parameters : { type: "object", properties: {} },
        strict: optionalBoolean(tool.strict, `${at}.strict`),
      },
    ];
  // A custom tool takes a string. Other providers get an object with one string property.
  toolNames.addCustom(name);
  return [{ name, description: textToolDescription(tool, at), parameters: TEXT_INPUT, strict: undefined }];
}

const TEXT_INPUT: Members = {
  type: "object",
  properties: { input: { type: "string", description: "The whole input of the tool." } },
  required: ["input"],
};

/** Appends the tool's grammar, because nothing else describes the input format. */
function textToolDescription(tool: Members, at: string): string | undefined {
  const description = optionalText(tool.description, `${at}.description`);
  const grammar = isMembers(tool.format) && typeof tool.format.definition === "string" ? tool.format.definition : "";
  return grammar === "" ? description : `${description ?? ""}\n\nThe input must follow this grammar:\n${grammar}`;
}

/** Returns the flat name of the tool that a call or a tool choice names. */
function readToolName(item: Members, at: string, toolNames: ToolNames): string {
  const name = text(item.name, `${at}.name`);
  const namespace = optionalText(item.namespace, `${at}.namespace`);
  return namespace === undefined ? name : toolNames.flatten(namespace, name);
}

function readToolChoice(value: unknown, toolNames: ToolNames): ToolChoice | undefined {
  if (value === undefined || value === null) return undefined;
  if (value === "auto" || value === "none" || value === "required") return value;
  const choice = members(value, "tool_choice");
  if (choice.type === "function" || choice.type === "custom")
    return { name: readToolName(choice, "tool_choice", toolNames) };
  if (choice.type === "allowed_tools") return choice.mode === "required" ? "required" : "auto";
  throw new TranslationError("tool_choice.type", "must be function, custom or allowed_tools");
}

function readThinking(value: unknown): Thinking | undefined {
  const effort = isMembers(value) ? optionalText(value.effort, "reasoning.effort") : undefined;
  return effort === undefined ? undefined : { param: "reasoning.effort", effort };
}

function readFormat(value: unknown): ResponseFormat | undefined {
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

/** Appends instructions found in the input to `system`. */
function readInput(
  input: unknown,
  system: TextPart[],
  context: Pick<TranslationContext, "toolNames" | "parsedItems" | "parsedChars">,
): Turn[] {
  const turns = new TurnList();
  if (typeof input === "string") {
    turns.add("user", [{ kind: "text", text: input }]);
    return turns.turns;
  }
  const toolNames = new Map<string, string>();
  for (const [i, value] of list(input, "input").entries()) {
    const at = `input[${i}]`;
    const item = members(value, at);
    const type = item.type ?? (item.role === undefined ? undefined : "message");
    switch (type) {
      case "message":
        readMessage(item, at, turns, system);
        break;
      case "function_call":
      case "custom_tool_call":
        turns.add("assistant", [readCall(item, at, toolNames, context)]);
        break;
      case "function_call_output":
      case "custom_tool_call_output":
        turns.add("user", [readOutput(item, at, toolNames)]);
        break;
      case "reasoning":
        turns.add("assistant", readReasoning(item));
        break;
      case "item_reference":
        throw new TranslationError(`${at}.type`, "items that are stored at OpenAI cannot be used by another provider");
      default:
        throw new TranslationError(`${at}.type`, `${JSON.stringify(item.type)} ${NOT_SUPPORTED}`);
    }
  }
  return turns.turns;
}

function readMessage(item: Members, at: string, turns: TurnList, system: TextPart[]): void {
  const { role } = item;
  const parts = readContent(item.content, `${at}.content`);
  if (role === "system" || role === "developer") {
    for (const part of parts) {
      if (part.kind !== "text") throw new TranslationError(`${at}.content`, "instructions can only be text");
      system.push(part);
    }
  } else if (role === "user" || role === "assistant") turns.add(role, parts);
  else throw new TranslationError(`${at}.role`, "must be user, assistant, system or developer");
}

function readCall(
  item: Members,
  at: string,
  toolNames: Map<string, string>,
  context: Pick<TranslationContext, "toolNames" | "parsedItems" | "parsedChars">,
): Part {
  const id = text(item.call_id, `${at}.call_id`);
  const name = readToolName(item, at, context.toolNames);
  toolNames.set(id, name);
  const input =
    item.type === "custom_tool_call"
      ? { input: text(item.input, `${at}.input`) }
      : parseArguments(item.arguments, `${at}.arguments`, context);
  return { kind: "toolCall", id, name, input };
}

function readOutput(item: Members, at: string, toolNames: Map<string, string>): Part {
  const id = text(item.call_id, `${at}.call_id`);
  const parts = readContent(item.output, `${at}.output`);
  return { kind: "toolResult", id, name: toolNames.get(id), parts, isError: false };
}

/** Reads the gateway's prefixed signature. Content without a prefix is OpenAI's own and is ignored. */
function readReasoning(item: Members): Part[] {
  const signature = readSignature(item.encrypted_content, undefined);
  if (signature === undefined) return [];
  const summary = Array.isArray(item.summary) ? item.summary.filter(isMembers) : [];
  const reasoning = summary.map((part) => (typeof part.text === "string" ? part.text : "")).join("");
  return [{ kind: "thought", text: reasoning, signature, isRedacted: reasoning === "" && summary.length === 0 }];
}

function readContent(content: unknown, at: string): ContentPart[] {
  if (typeof content === "string") return [{ kind: "text", text: content }];
  return optionalList(content, at).map((value, i) => readPart(members(value, `${at}[${i}]`), `${at}[${i}]`));
}

function readPart(part: Members, at: string): ContentPart {
  switch (part.type) {
    case "input_text":
    case "output_text":
    case "text":
    case "summary_text":
      return { kind: "text", text: text(part.text, `${at}.text`) };
    case "refusal":
      return { kind: "text", text: text(part.refusal, `${at}.refusal`) };
    case "input_image": {
      if (part.image_url === undefined || part.image_url === null)
        throw new TranslationError(
          `${at}.file_id`,
          "files that are stored at OpenAI cannot be used by another provider",
        );
      const url = text(part.image_url, `${at}.image_url`);
      return { kind: "image", source: parseDataUrl(url, `${at}.image_url`) ?? { url } };
    }
    case "input_file": {
      const name = optionalText(part.filename, `${at}.filename`);
      if (typeof part.file_url === "string") return { kind: "file", source: { url: part.file_url }, name };
      if (part.file_data === undefined || part.file_data === null)
        throw new TranslationError(
          `${at}.file_id`,
          "files that are stored at OpenAI cannot be used by another provider",
        );
      const data = text(part.file_data, `${at}.file_data`);
      const source = parseDataUrl(data, `${at}.file_data`) ?? { mediaType: "application/pdf", data };
      return { kind: "file", source, name };
    }
    default:
      throw new TranslationError(`${at}.type`, `${JSON.stringify(part.type)} ${NOT_SUPPORTED}`);
  }
}
