/**
 * Implements the client side of Anthropic's Messages API.
 */
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { type ParsedTexts, readCounted } from "../../json/read-json.ts";
import type { Usage } from "../usage/usage.ts";
import {
  type ContentPart,
  type Conversation,
  type Losses,
  list,
  members,
  NOT_SUPPORTED,
  optionalList,
  optionalNumber,
  optionalText,
  type Part,
  type ResponseFormat,
  readSettings,
  readSignature,
  type TextPart,
  type Thinking,
  type Tool,
  type ToolChoice,
  type ToolResultPart,
  TranslationError,
  type Turn,
  TurnList,
  text,
  UpstreamResponseError,
  writeSignature,
} from "./conversation.ts";
import {
  type CompleteResponse,
  type Finish,
  type OutEvent,
  type ResponsePart,
  type StreamWriter,
  ToolCallSequencer,
  type TranslationContext,
} from "./translation.ts";

const TOOL_ARGUMENTS = peerInput("llm-provider/tool-arguments");

const KNOWN = new Set([
  ...["model", "messages", "system", "max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences"],
  ...["tools", "tool_choice", "metadata", "thinking", "output_config", "output_format"],
]);
const WITHOUT_EFFECT = new Set(["cache_control", "service_tier"]);
const TOOL_KNOWN = new Set(["type", "name", "description", "input_schema", "strict", "cache_control"]);
/** Other providers have no equivalent of these tool options, so they are dropped without being reported. */
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
    tools: readTools(optionalList(body.tools, "tools"), losses),
    toolChoice: readToolChoice(body.tool_choice),
    parallelTools: choice?.disable_parallel_tool_use === true && choice.type !== "none" ? false : undefined,
    maxTokens: optionalNumber(body.max_tokens, "max_tokens"),
    stop: optionalList(body.stop_sequences, "stop_sequences").map((one, i) => text(one, `stop_sequences[${i}]`)),
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

function readFormat(body: Members): ResponseFormat | undefined {
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

function readSystem(system: unknown, at: string): TextPart[] {
  if (typeof system === "string") return system === "" ? [] : [{ kind: "text", text: system }];
  return optionalList(system, at).map((value, i) => {
    const block = members(value, `${at}[${i}]`);
    return { kind: "text", text: text(block.text, `${at}[${i}].text`), ...cacheMark(block) };
  });
}

/** Appends instructions found among the messages to `system`. */
function readTurns(messages: readonly unknown[], system: TextPart[], losses: Losses): Turn[] {
  const turns = new TurnList();
  const toolNames = new Map<string, string>();
  for (const [i, value] of messages.entries()) {
    const at = `messages[${i}]`;
    const message = members(value, at);
    const { role, content } = message;
    for (const [name, member] of Object.entries(message))
      if (name !== "role" && name !== "content" && member !== null) losses.lose(`${at}.${name}`, member);
    if (role === "system") system.push(...readSystem(content, `${at}.content`));
    else if (role !== "user" && role !== "assistant")
      throw new TranslationError(`${at}.role`, "must be user or assistant");
    else if (typeof content === "string") turns.add(role, [{ kind: "text", text: content }]);
    else
      turns.add(
        role,
        list(content, `${at}.content`).flatMap((block, j) => {
          const where = `${at}.content[${j}]`;
          return role === "assistant"
            ? readAssistantBlock(members(block, where), where, toolNames)
            : readUserBlock(members(block, where), where, toolNames, losses);
        }),
      );
  }
  return turns.turns;
}

function readAssistantBlock(block: Members, where: string, toolNames: Map<string, string>): Part[] {
  switch (block.type) {
    case "text":
      return [{ kind: "text", text: text(block.text, `${where}.text`), ...cacheMark(block) }];
    case "tool_use": {
      const id = text(block.id, `${where}.id`);
      const name = text(block.name, `${where}.name`);
      toolNames.set(id, name);
      return [{ kind: "toolCall", id, name, input: isMembers(block.input) ? block.input : {} }];
    }
    case "thinking":
    case "redacted_thinking": {
      const isRedacted = block.type === "redacted_thinking";
      const signature = readSignature(isRedacted ? block.data : block.signature, "anthropic");
      if (signature === undefined) return [];
      return [{ kind: "thought", text: String(block.thinking ?? ""), signature, isRedacted }];
    }
    default:
      throw unsupportedBlock(block, where);
  }
}

function readUserBlock(block: Members, where: string, toolNames: Map<string, string>, losses: Losses): Part[] {
  return block.type === "tool_result"
    ? [readResult(block, where, toolNames, losses)]
    : [readContent(block, where, losses)];
}

function readResult(block: Members, where: string, toolNames: Map<string, string>, losses: Losses): ToolResultPart {
  const id = text(block.tool_use_id, `${where}.tool_use_id`);
  const { content } = block;
  const parts: ContentPart[] =
    typeof content === "string"
      ? [{ kind: "text", text: content }]
      : optionalList(content, `${where}.content`).flatMap((value, i) => {
          const at = `${where}.content[${i}]`;
          const inner = members(value, at);
          // References belong to Anthropic's tool search, so other providers do not get them.
          if (inner.type === "tool_reference") return [];
          return [readContent(inner, at, losses)];
        });
  return {
    kind: "toolResult",
    id,
    name: toolNames.get(id),
    parts,
    isError: block.is_error === true,
    ...cacheMark(block),
  };
}

function readContent(block: Members, where: string, losses: Losses): ContentPart {
  switch (block.type) {
    case "text":
      return { kind: "text", text: text(block.text, `${where}.text`), ...cacheMark(block) };
    case "image":
      return { kind: "image", source: readSource(block, where), ...cacheMark(block) };
    case "document": {
      if (isMembers(block.citations) && block.citations.enabled === true)
        losses.lose(`${where}.citations`, block.citations, "are not supported by the provider of this model");
      if (typeof block.context === "string") losses.lose(`${where}.context`, block.context);
      const source = members(block.source, `${where}.source`);
      if (source.type === "text")
        return { kind: "text", text: text(source.data, `${where}.source.data`), ...cacheMark(block) };
      const name = optionalText(block.title, `${where}.title`) ?? "document.pdf";
      return { kind: "file", source: readSource(block, where), name, ...cacheMark(block) };
    }
    default:
      throw unsupportedBlock(block, where);
  }
}

function readSource(block: Members, where: string): { url: string } | { mediaType: string; data: string } {
  const source = members(block.source, `${where}.source`);
  if (source.type === "url") return { url: text(source.url, `${where}.source.url`) };
  if (source.type === "base64")
    return {
      mediaType: text(source.media_type, `${where}.source.media_type`),
      data: text(source.data, `${where}.source.data`),
    };
  throw new TranslationError(`${where}.source.type`, "must be base64 or url for the provider of this model");
}

function cacheMark(block: Members): { cacheControl?: unknown } {
  return block.cache_control === undefined || block.cache_control === null ? {} : { cacheControl: block.cache_control };
}

function unsupportedBlock(block: Members, where: string): TranslationError {
  return new TranslationError(`${where}.type`, `${JSON.stringify(block.type)} ${NOT_SUPPORTED}`);
}

const STOP: Readonly<Record<Finish, string>> = {
  stop: "end_turn",
  length: "max_tokens",
  toolCalls: "tool_use",
  filter: "refusal",
};

export function writeMessagesResponse(response: CompleteResponse, context: TranslationContext): Members {
  const choice = response.choices[0];
  return {
    id: response.id ?? `msg_${context.newId()}`,
    type: "message",
    role: "assistant",
    model: response.model ?? context.model,
    content: choice?.parts.map((part) => block(part, context)) ?? [],
    stop_reason: STOP[choice?.finish ?? "stop"],
    stop_sequence: null,
    usage: messagesUsage(response.counted),
  };
}

function block(part: ResponsePart, context: TranslationContext): Members {
  switch (part.kind) {
    case "text":
      return { type: "text", text: part.text };
    case "thought": {
      const signature = part.signature === undefined ? "" : writeSignature(part.signature, "anthropic");
      if (part.isRedacted) return { type: "redacted_thinking", data: signature };
      return { type: "thinking", thinking: part.text, signature };
    }
    case "toolCall":
      return {
        type: "tool_use",
        id: part.id ?? `toolu_${context.newId()}`,
        name: part.name,
        input: parseToolInput(part.input, context),
      };
  }
}

/** Arguments that are not a JSON object are wrapped in an object instead of being dropped. */
export function parseToolInput(json: string, context: ParsedTexts): Members {
  if (json.trim() === "") return {};
  try {
    const input = readCounted(TOOL_ARGUMENTS, json, context);
    return isMembers(input) ? input : { arguments: input };
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    if (error.problem !== "form") throw new UpstreamResponseError(502, `the input of a tool call ${error.message}`);
    return { arguments: json };
  }
}

/** Anthropic's input count excludes cached tokens. */
function messagesUsage(usage: Usage | undefined): Members {
  const cached = usage?.cachedInputTokens ?? 0;
  const written = usage?.cacheCreationInputTokens ?? 0;
  return {
    input_tokens: Math.max(0, (usage?.inputTokens ?? 0) - cached - written),
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    output_tokens: usage?.outputTokens ?? 0,
  };
}

export function openMessagesStream(context: TranslationContext): StreamWriter {
  let out: OutEvent[] = [];
  let open: "text" | "thinking" | "tool" | undefined;
  let index = -1;
  let begun = false;
  let stopReason = STOP.stop;
  let usage: Usage | undefined;

  const event = (type: string, data: Members): void => {
    out.push({ event: type, data: { type, ...data } });
  };
  const close = (): void => {
    if (open === undefined) return;
    open = undefined;
    event("content_block_stop", { index });
  };
  const start = (kind: NonNullable<typeof open>, content: Members): void => {
    close();
    open = kind;
    index += 1;
    event("content_block_start", { index, content_block: content });
  };
  const delta = (value: Members): void => event("content_block_delta", { index, delta: value });
  const tools = new ToolCallSequencer({
    start: ({ id, name }) => start("tool", { type: "tool_use", id: id ?? `toolu_${context.newId()}`, name, input: {} }),
    input: (json) => delta({ type: "input_json_delta", partial_json: json }),
    end: close,
  });
  const thinking = (): void => {
    if (open !== "thinking") start("thinking", { type: "thinking", thinking: "", signature: "" });
  };

  return {
    begin(id, model) {
      if (begun) return;
      begun = true;
      const message = {
        id: id ?? `msg_${context.newId()}`,
        type: "message",
        role: "assistant",
        model: model ?? context.model,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: messagesUsage(undefined),
      };
      event("message_start", { message });
    },
    text(choice, text) {
      if (choice !== 0 || text === "") return;
      tools.flush();
      if (open !== "text") start("text", { type: "text", text: "" });
      delta({ type: "text_delta", text });
    },
    thought(choice, text) {
      if (choice !== 0 || text === "") return;
      tools.flush();
      thinking();
      delta({ type: "thinking_delta", thinking: text });
    },
    signed(choice, signature) {
      if (choice !== 0 || open === "tool") return;
      thinking();
      delta({ type: "signature_delta", signature: writeSignature(signature, "anthropic") });
      close();
    },
    redacted(choice, signature) {
      if (choice !== 0) return;
      tools.flush();
      start("thinking", { type: "redacted_thinking", data: writeSignature(signature, "anthropic") });
      close();
    },
    toolCall(choice, call, id, name, signature) {
      if (choice === 0) tools.start({ call, id, name, signature });
    },
    toolInput(choice, call, json) {
      if (choice === 0) tools.input(call, json);
    },
    toolEnd(choice, call) {
      if (choice === 0) tools.end(call);
    },
    finish(choice, finish) {
      if (choice === 0) stopReason = STOP[finish];
    },
    usage(counted) {
      usage = counted;
    },
    take() {
      const taken = out;
      out = [];
      return taken;
    },
    end() {
      tools.flush();
      close();
      event("message_delta", { delta: { stop_reason: stopReason, stop_sequence: null }, usage: messagesUsage(usage) });
      event("message_stop", {});
    },
    heldChars: () => tools.heldChars,
  };
}
