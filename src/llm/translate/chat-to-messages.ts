/**
 * A chat client and a provider that speaks Anthropic's messages.
 */
import { errorMessage } from "../dialects/error-shape.ts";
import { mergeUsage, readUsage } from "../usage/usage.ts";
import { isMembers, type Members } from "../wire/json.ts";
import { type ChatToolCall, chatCompletion, createChunkWriter, type Finish } from "./chat-answer.ts";
import type { Part } from "./chat-messages.ts";
import { type ChatRequest, readChatRequest, requireSettings, type ToolChoice } from "./chat-request.ts";
import { compact } from "./fields.ts";
import {
  type OutEvent,
  type StreamTranslation,
  type Translation,
  type TranslationContext,
  TranslationError,
  UpstreamAnswerError,
} from "./translation.ts";

/** The provider wants a limit, chat clients need not give one. */
const DEFAULT_MAX_TOKENS = 8192;
const EFFORTS = new Set(["low", "medium", "high", "xhigh", "max"]);

export const chatToMessages: Translation = { request, response, stream };

function request(body: Members, context: TranslationContext): Members {
  const chat = readChatRequest(body);
  requireSettings(chat, [
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "reasoning_effort",
    "parallel_tool_calls",
    "response_format",
  ]);
  const { settings } = chat;
  return compact({
    model: context.model,
    max_tokens: chat.maxTokens ?? DEFAULT_MAX_TOKENS,
    system:
      chat.system.length === 0
        ? undefined
        : chat.system.map((part) => compact({ type: "text", text: part.text, cache_control: part.cacheControl })),
    messages: chat.turns.map(({ role, parts }) => ({ role, content: parts.map(blockOf) })),
    tools:
      chat.tools.length === 0
        ? undefined
        : chat.tools.map(({ name, description, parameters, strict, cacheControl }) =>
            compact({
              name,
              description,
              input_schema: parameters,
              strict: strict === true ? true : undefined,
              cache_control: cacheControl,
            }),
          ),
    tool_choice: toolChoice(chat.toolChoice, settings.parallel_tool_calls),
    temperature: settings.temperature,
    top_p: settings.top_p,
    top_k: settings.top_k,
    thinking: settings.thinking,
    output_config: outputConfig(chat),
    stop_sequences: chat.stop.length === 0 ? undefined : chat.stop,
    metadata: chat.user === undefined ? undefined : { user_id: chat.user },
    stream: context.stream ? true : undefined,
  });
}

function blockOf(part: Part): Members {
  switch (part.kind) {
    case "text":
      return compact({ type: "text", text: part.text, cache_control: part.cacheControl });
    case "image": {
      const source =
        "url" in part.source
          ? { type: "url", url: part.source.url }
          : { type: "base64", media_type: part.source.mediaType, data: part.source.data };
      return compact({ type: "image", source, cache_control: part.cacheControl });
    }
    case "file":
      if (part.source.mediaType !== "application/pdf")
        throw new TranslationError(
          "messages",
          `files of type ${part.source.mediaType} are not supported by the provider of this model`,
        );
      return compact({
        type: "document",
        source: { type: "base64", media_type: "application/pdf", data: part.source.data },
        title: part.name,
        cache_control: part.cacheControl,
      });
    case "toolCall":
      return { type: "tool_use", id: part.id, name: part.name, input: part.input };
    case "toolResult":
      return compact({
        type: "tool_result",
        tool_use_id: part.id,
        content: part.text,
        cache_control: part.cacheControl,
      });
  }
}

function toolChoice(choice: ToolChoice | undefined, parallel: boolean | undefined): Members | undefined {
  const oneAtATime = parallel === false ? { disable_parallel_tool_use: true } : {};
  if (choice === undefined) return parallel === false ? { type: "auto", ...oneAtATime } : undefined;
  if (choice === "none") return { type: "none" };
  if (choice === "auto") return { type: "auto", ...oneAtATime };
  if (choice === "required") return { type: "any", ...oneAtATime };
  return { type: "tool", name: choice.name, ...oneAtATime };
}

function outputConfig({ settings }: ChatRequest): Members | undefined {
  const { response_format: format, reasoning_effort: effort } = settings;
  if (format?.kind === "json")
    throw new TranslationError(
      "response_format",
      "json_object is not supported by the provider of this model; use json_schema",
    );
  if (effort !== undefined && !EFFORTS.has(effort))
    throw new TranslationError(
      "reasoning_effort",
      `${JSON.stringify(effort)} is not supported by the provider of this model`,
    );
  if (format === undefined && effort === undefined) return undefined;
  return compact({ effort, format: format && { type: "json_schema", schema: format.schema } });
}

function response(body: Members, context: TranslationContext): Members {
  if (!Array.isArray(body.content)) throw new UpstreamAnswerError(502, "the provider's answer has no content");
  let text = "";
  let reasoning = "";
  const toolCalls: ChatToolCall[] = [];
  for (const block of body.content.filter(isMembers)) {
    if (block.type === "text") text += String(block.text);
    else if (block.type === "thinking") reasoning += String(block.thinking);
    else if (block.type === "tool_use")
      toolCalls.push({ id: String(block.id), name: String(block.name), arguments: JSON.stringify(block.input ?? {}) });
  }
  return chatCompletion(
    context,
    textOrNothing(body.id),
    textOrNothing(body.model),
    [{ text, reasoning, toolCalls, finish: finishOf(body.stop_reason) }],
    readUsage(body.usage),
  );
}

function finishOf(stopReason: unknown): Finish {
  switch (stopReason) {
    case "max_tokens":
    case "model_context_window_exceeded":
      return "length";
    case "tool_use":
      return "tool_calls";
    case "refusal":
      return "content_filter";
    default:
      return "stop";
  }
}

function stream(context: TranslationContext): StreamTranslation {
  const chunks = createChunkWriter(context);
  let usage: Members | undefined;
  let toolIndex = -1;
  /** A tool without arguments is called with an empty object; its stream says nothing at all. */
  let awaitsArguments = false;
  let finished = false;
  const argument = (text: unknown): OutEvent =>
    chunks.delta(0, { tool_calls: [{ index: toolIndex, function: { arguments: text } }] });
  return {
    event(_name, data) {
      switch (data.type) {
        case "message_start": {
          const message = isMembers(data.message) ? data.message : {};
          if (isMembers(message.usage)) usage = mergeUsage(usage, message.usage);
          return chunks.begin(textOrNothing(message.id), textOrNothing(message.model));
        }
        case "content_block_start": {
          const block = isMembers(data.content_block) ? data.content_block : {};
          if (block.type !== "tool_use") return [];
          toolIndex += 1;
          awaitsArguments = true;
          return [
            chunks.delta(0, {
              tool_calls: [
                { index: toolIndex, id: block.id, type: "function", function: { name: block.name, arguments: "" } },
              ],
            }),
          ];
        }
        case "content_block_delta": {
          const delta = isMembers(data.delta) ? data.delta : {};
          if (delta.type === "text_delta") return [chunks.delta(0, { content: delta.text })];
          if (delta.type === "thinking_delta") return [chunks.delta(0, { reasoning_content: delta.thinking })];
          if (delta.type !== "input_json_delta") return [];
          if (delta.partial_json !== "") awaitsArguments = false;
          return [argument(delta.partial_json)];
        }
        case "content_block_stop": {
          const isEmpty = awaitsArguments;
          awaitsArguments = false;
          return isEmpty ? [argument("{}")] : [];
        }
        case "message_delta": {
          if (isMembers(data.usage)) usage = mergeUsage(usage, data.usage);
          const delta = isMembers(data.delta) ? data.delta : {};
          if (typeof delta.stop_reason !== "string") return [];
          finished = true;
          return [chunks.finish(0, finishOf(delta.stop_reason))];
        }
        case "error":
          throw new UpstreamAnswerError(500, errorMessage(data, ""));
        default:
          return [];
      }
    },
    // A stream without a reason to stop was cut: the client must not take it for whole.
    end() {
      if (!finished) throw new UpstreamAnswerError(502, "the provider's stream ended early");
      return chunks.done(readUsage(usage));
    },
  };
}

function textOrNothing(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
