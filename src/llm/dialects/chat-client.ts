/**
 * Implements the client side of OpenAI's Chat Completions API.
 */
import { lookupTable } from "../../base/lookup-table.ts";
import { isMembers, type Members } from "../../json/json.ts";
import type { Usage } from "../usage/usage.ts";
import {
  type ContentPart,
  type Conversation,
  compact,
  type Losses,
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
  type Signature,
  type TextPart,
  type Thinking,
  type Tool,
  type ToolCallPart,
  type ToolChoice,
  TranslationError,
  type Turn,
  TurnList,
  text,
  unlessEmpty,
  writeSignature,
} from "./conversation.ts";
import {
  type Choice,
  type CompleteResponse,
  choiceReasoning,
  choiceText,
  type Finish,
  type OutEvent,
  type StreamWriter,
  type TranslationContext,
} from "./translation.ts";

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
const WITHOUT_EFFECT = new Set([
  "metadata",
  "store",
  "prompt_cache_key",
  "prompt_cache_retention",
  "safety_identifier",
]);
/** A parameter with one of these values has the same effect as an absent parameter. */
const NEUTRAL = lookupTable<(value: unknown) => boolean>({
  logprobs: (value) => value === false,
  top_logprobs: (value) => value === 0,
  logit_bias: (value) => isMembers(value) && Object.keys(value).length === 0,
  modalities: (value) => Array.isArray(value) && value.length === 1 && value[0] === "text",
});

export function readChatRequest(body: Members, context: TranslationContext): Conversation {
  const { losses } = context;
  for (const [name, value] of Object.entries(body)) {
    if (KNOWN.has(name) || WITHOUT_EFFECT.has(name) || value === null || NEUTRAL[name]?.(value) === true) continue;
    losses.lose(name, value);
  }
  const { system, turns } = readMessages(list(body.messages, "messages"), context);
  const n = optionalNumber(body.n, "n");
  const number = (name: string, neutral?: number) => {
    const value = optionalNumber(body[name], name);
    return { param: name, value: value === neutral ? undefined : value };
  };
  const tier = optionalText(body.service_tier, "service_tier");
  return {
    system,
    turns,
    tools: readTools(optionalList(body.tools, "tools"), losses),
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

/** `thinking` belongs to Anthropic's API, but many chat clients send it. */
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
  if (typeof value === "string") return [value];
  return optionalList(value, "stop").map((one, i) => text(one, `stop[${i}]`));
}

function readFormat(value: unknown): ResponseFormat | undefined {
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

/** Includes members that clients copy from an earlier response. */
const MESSAGE_KNOWN = new Set([
  "role",
  "content",
  "tool_calls",
  "tool_call_id",
  "refusal",
  "annotations",
  "parsed",
  "reasoning",
  "reasoning_content",
  "reasoning_details",
  "cache_control",
  "extra_content",
]);

function readMessages(
  messages: readonly unknown[],
  context: TranslationContext,
): { system: TextPart[]; turns: Turn[] } {
  const { losses } = context;
  const system: TextPart[] = [];
  const turns = new TurnList();
  const toolNames = new Map<string, string>();
  for (const [i, value] of messages.entries()) {
    const at = `messages[${i}]`;
    const message = members(value, at);
    loseUnknown(message, at, losses);
    switch (message.role) {
      case "system":
      case "developer":
        for (const part of readContent(message.content, `${at}.content`)) {
          if (part.kind !== "text") throw new TranslationError(`${at}.content`, "instructions can only be text");
          system.push(part);
        }
        break;
      case "user":
        turns.add("user", readContent(message.content, `${at}.content`));
        break;
      case "assistant": {
        const calls = readToolCalls(message, at, context);
        for (const call of calls) toolNames.set(call.id, call.name);
        turns.add("assistant", [...assistantContent(message, at), ...calls]);
        break;
      }
      case "tool": {
        const id = text(message.tool_call_id, `${at}.tool_call_id`);
        const parts = readContent(message.content, `${at}.content`);
        const cacheControl = parts.findLast((part) => part.cacheControl !== undefined)?.cacheControl;
        const name = toolNames.get(id);
        turns.add("user", [
          { kind: "toolResult", id, name, parts, isError: false, cacheControl: cacheControl ?? message.cache_control },
        ]);
        break;
      }
      default:
        throw new TranslationError(`${at}.role`, "must be system, developer, user, assistant or tool");
    }
  }
  return { system, turns: turns.turns };
}

function assistantContent(message: Members, at: string): Part[] {
  const content =
    message.content === null || message.content === undefined ? [] : readContent(message.content, `${at}.content`);
  const refusal = optionalText(message.refusal, `${at}.refusal`);
  return refusal === undefined || refusal === "" ? content : [...content, { kind: "text", text: refusal }];
}

/** Reports members that would otherwise be dropped silently. */
function loseUnknown(message: Members, at: string, losses: Losses): void {
  for (const [name, value] of Object.entries(message)) {
    // The name of a tool result is already set by its call.
    const isKnown = MESSAGE_KNOWN.has(name) || (name === "name" && message.role === "tool");
    if (!isKnown && value !== null && name !== "function_call") losses.lose(`${at}.${name}`, value);
  }
}

function readToolCalls(message: Members, at: string, context: TranslationContext): ToolCallPart[] {
  if (message.function_call !== undefined && message.function_call !== null)
    throw new TranslationError(`${at}.function_call`, "is not supported; use tool_calls");
  return optionalList(message.tool_calls, `${at}.tool_calls`).map((value, j) => {
    const where = `${at}.tool_calls[${j}]`;
    const call = members(value, where);
    if (call.type !== undefined && call.type !== "function")
      throw new TranslationError(`${where}.type`, "must be function");
    const called = members(call.function, `${where}.function`);
    return {
      kind: "toolCall",
      id: text(call.id, `${where}.id`),
      name: text(called.name, `${where}.function.name`),
      input: parseArguments(called.arguments, `${where}.function.arguments`, context),
      signature: googleSignature(call),
    };
  });
}

/** Google's OpenAI-compatible API stores the signature of Gemini's reasoning in `extra_content`. */
function googleSignature(call: Members): Signature | undefined {
  const google = isMembers(call.extra_content) ? call.extra_content.google : undefined;
  return isMembers(google) ? readSignature(google.thought_signature, "google") : undefined;
}

function readContent(content: unknown, at: string): ContentPart[] {
  if (typeof content === "string") return content === "" ? [] : [{ kind: "text", text: content }];
  return list(content, at).map((value, i) => readPart(members(value, `${at}[${i}]`), `${at}[${i}]`));
}

function readPart(part: Members, at: string): ContentPart {
  const cache = part.cache_control === undefined ? {} : { cacheControl: part.cache_control };
  switch (part.type) {
    case "text":
      return { kind: "text", text: text(part.text, `${at}.text`), ...cache };
    // Some servers write reasoning into the content. Other providers cannot use it.
    case "thinking":
      return { kind: "text", text: "" };
    case "refusal":
      return { kind: "text", text: text(part.refusal, `${at}.refusal`) };
    case "image_url": {
      const image = members(part.image_url, `${at}.image_url`);
      const url = text(image.url, `${at}.image_url.url`);
      return { kind: "image", source: parseDataUrl(url, `${at}.image_url.url`) ?? { url }, ...cache };
    }
    case "file": {
      const file = members(part.file, `${at}.file`);
      if (file.file_data === undefined)
        throw new TranslationError(`${at}.file`, "only files with file_data can be sent to the provider of this model");
      const source = parseDataUrl(text(file.file_data, `${at}.file.file_data`), `${at}.file.file_data`);
      if (!source) throw new TranslationError(`${at}.file.file_data`, "must be a data URL");
      return { kind: "file", source, name: optionalText(file.filename, `${at}.file.filename`), ...cache };
    }
    default:
      throw new TranslationError(`${at}.type`, `${JSON.stringify(part.type)} ${NOT_SUPPORTED}`);
  }
}

const FINISH: Readonly<Record<Finish, string>> = {
  stop: "stop",
  length: "length",
  toolCalls: "tool_calls",
  filter: "content_filter",
};

export function writeChatResponse(response: CompleteResponse, context: TranslationContext): Members {
  return compact({
    id: response.id ?? `chatcmpl-${context.newId()}`,
    object: "chat.completion",
    created: context.createdSeconds,
    model: response.model ?? context.model,
    choices: response.choices.map((choice, index) => ({
      index,
      message: message(choice, context),
      logprobs: null,
      finish_reason: FINISH[choice.finish],
    })),
    usage: response.counted && chatUsage(response.counted),
  });
}

function message(choice: Choice, context: TranslationContext): Members {
  const text = choiceText(choice);
  const reasoning = choiceReasoning(choice);
  const calls = choice.parts.flatMap((part) =>
    part.kind === "toolCall"
      ? [
          toolCall(
            part.id ?? `call_${context.newId()}`,
            part.name,
            part.input === "" ? "{}" : part.input,
            part.signature,
          ),
        ]
      : [],
  );
  return compact({
    role: "assistant",
    // OpenAI sends `null` content instead of an empty string for a response with only tool calls.
    content: text === "" && calls.length > 0 ? null : text,
    reasoning_content: reasoning === "" ? undefined : reasoning,
    tool_calls: unlessEmpty(calls),
  });
}

/** Cached tokens are included in the prompt tokens and also reported separately. */
function chatUsage(usage: Usage): Members {
  return compact({
    prompt_tokens: usage.inputTokens,
    completion_tokens: usage.outputTokens,
    total_tokens: usage.totalTokens,
    prompt_tokens_details:
      usage.cachedInputTokens === undefined && usage.cacheCreationInputTokens === undefined
        ? undefined
        : compact({ cached_tokens: usage.cachedInputTokens ?? 0, cache_write_tokens: usage.cacheCreationInputTokens }),
    completion_tokens_details:
      usage.reasoningTokens === undefined ? undefined : { reasoning_tokens: usage.reasoningTokens },
  });
}

function toolCall(id: string, name: string, input: string, signature: Signature | undefined): Members {
  return {
    id,
    type: "function",
    function: { name, arguments: input },
    ...(signature === undefined
      ? {}
      : { extra_content: { google: { thought_signature: writeSignature(signature, "google") } } }),
  };
}

export function openChatStream(context: TranslationContext): StreamWriter {
  let head: Members = {};
  let begun = false;
  let out: OutEvent[] = [];
  let usage: Usage | undefined;
  /** The first input of a started call may arrive in the same event, so its chunk is delayed. */
  let started: { choice: number; call: number; written: Members } | undefined;
  /** A call without arguments has no input event, so an empty object is written at its end. */
  const withoutInput = new Set<string>();

  const chunk = (choice: number, delta: Members, finish: string | null): void => {
    const { id, object, created, model } = head;
    const choices = [{ index: choice, delta, logprobs: null, finish_reason: finish }];
    out.push({ data: { id, object, created, model, choices } });
  };
  const flush = (): void => {
    if (started === undefined) return;
    const { choice, call, written } = started;
    started = undefined;
    chunk(choice, { tool_calls: [{ index: call, ...written }] }, null);
  };
  const input = (choice: number, call: number, json: string): void => {
    if (started?.choice === choice && started.call === call) {
      const { written } = started;
      started = {
        choice,
        call,
        written: { ...written, function: { ...(written.function as Members), arguments: json } },
      };
      flush();
    } else {
      flush();
      chunk(choice, { tool_calls: [{ index: call, function: { arguments: json } }] }, null);
    }
  };
  const begin = (id: string | undefined, model: string | undefined): void => {
    if (begun) return;
    begun = true;
    head = {
      id: id ?? `chatcmpl-${context.newId()}`,
      object: "chat.completion.chunk",
      created: context.createdSeconds,
      model: model ?? context.model,
    };
    chunk(0, { role: "assistant", content: "" }, null);
  };

  return {
    begin,
    text(choice, text) {
      if (text !== "") chunk(choice, { content: text }, null);
    },
    thought(choice, text) {
      if (text !== "") chunk(choice, { reasoning_content: text }, null);
    },
    signed() {
      // The chat format has no field for the signature of reasoning.
    },
    redacted() {
      // The chat format has no field for redacted reasoning.
    },
    toolCall(choice, call, id, name, signature) {
      flush();
      withoutInput.add(`${choice} ${call}`);
      started = { choice, call, written: toolCall(id ?? `call_${context.newId()}`, name, "", signature) };
    },
    toolInput(choice, call, json) {
      if (json === "") return;
      withoutInput.delete(`${choice} ${call}`);
      input(choice, call, json);
    },
    toolEnd(choice, call) {
      if (withoutInput.delete(`${choice} ${call}`)) input(choice, call, "{}");
    },
    finish(choice, finish) {
      flush();
      chunk(choice, {}, FINISH[finish]);
    },
    usage(counted) {
      usage = counted;
    },
    take() {
      flush();
      const taken = out;
      out = [];
      return taken;
    },
    end() {
      if (context.includeUsage && usage) out.push({ data: { ...head, choices: [], usage: chatUsage(usage) } });
      out.push({ data: "[DONE]" });
    },
    heldChars: () => 0,
  };
}
