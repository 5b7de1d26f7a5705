/**
 * A chat client and Amazon Bedrock's converse.
 */
import { lookupTable } from "../../lib/text/lookup-table.ts";
import { errorMessage } from "../dialects/error-shape.ts";
import { readUsage } from "../usage/usage.ts";
import { isMembers, type Members } from "../wire/json.ts";
import { type ChatToolCall, chatCompletion, createChunkWriter, type Finish } from "./chat-answer.ts";
import type { Part } from "./chat-messages.ts";
import { type ChatRequest, readChatRequest, requireSettings } from "./chat-request.ts";
import { compact } from "./fields.ts";
import {
  type OutEvent,
  type StreamTranslation,
  type Translation,
  type TranslationContext,
  TranslationError,
  UpstreamAnswerError,
} from "./translation.ts";

const IMAGE_FORMATS = lookupTable<string>({
  "image/png": "png",
  "image/jpeg": "jpeg",
  "image/jpg": "jpeg",
  "image/gif": "gif",
  "image/webp": "webp",
});
const DOCUMENT_FORMATS = lookupTable<string>({
  "application/pdf": "pdf",
  "text/csv": "csv",
  "text/html": "html",
  "text/plain": "txt",
  "text/markdown": "md",
  "application/msword": "doc",
  "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
  "application/vnd.ms-excel": "xls",
  "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
});

export const chatToConverse: Translation = { request, response, stream };

function request(body: Members): Members {
  const chat = readChatRequest(body);
  requireSettings(chat, ["temperature", "top_p", "top_k", "thinking"]);
  const { settings } = chat;
  const inference = compact({
    maxTokens: chat.maxTokens,
    temperature: settings.temperature,
    topP: settings.top_p,
    stopSequences: chat.stop.length === 0 ? undefined : chat.stop,
  });
  const additional = compact({ top_k: settings.top_k, thinking: settings.thinking });
  return compact({
    system: chat.system.length === 0 ? undefined : chat.system.map(({ text }) => ({ text })),
    messages: chat.turns.map(({ role, parts }) => ({ role, content: parts.map(blockOf) })),
    inferenceConfig: Object.keys(inference).length === 0 ? undefined : inference,
    toolConfig: toolConfig(chat),
    additionalModelRequestFields: Object.keys(additional).length === 0 ? undefined : additional,
  });
}

function blockOf(part: Part): Members {
  switch (part.kind) {
    case "text":
      return { text: part.text };
    case "image": {
      if ("url" in part.source)
        throw new TranslationError("messages", "the provider of this model takes images only as data URLs");
      const format = IMAGE_FORMATS[part.source.mediaType];
      if (format === undefined)
        throw new TranslationError(
          "messages",
          `images of type ${part.source.mediaType} are not supported by the provider of this model`,
        );
      return { image: { format, source: { bytes: part.source.data } } };
    }
    case "file": {
      const format = DOCUMENT_FORMATS[part.source.mediaType];
      if (format === undefined)
        throw new TranslationError(
          "messages",
          `files of type ${part.source.mediaType} are not supported by the provider of this model`,
        );
      return { document: { format, name: documentName(part.name), source: { bytes: part.source.data } } };
    }
    case "toolCall":
      return { toolUse: { toolUseId: part.id, name: part.name, input: part.input } };
    case "toolResult":
      return { toolResult: { toolUseId: part.id, content: [{ text: part.text }] } };
  }
}

/** The provider allows letters, digits, single blanks, hyphens and brackets. */
function documentName(name: string | undefined): string {
  const cleaned = (name ?? "")
    .replace(/\.[^.]*$/, "")
    .replace(/[^A-Za-z0-9 ()[\]-]+/g, "-")
    .replace(/ {2,}/g, " ")
    .trim();
  return cleaned === "" ? "document" : cleaned;
}

function toolConfig(chat: ChatRequest): Members | undefined {
  if (chat.tools.length === 0) return undefined;
  const { toolChoice } = chat;
  const usesTools = chat.turns.some(({ parts }) =>
    parts.some(({ kind }) => kind === "toolCall" || kind === "toolResult"),
  );
  if (toolChoice === "none") {
    // The provider cannot forbid tools; without their definitions the model cannot call them.
    if (usesTools)
      throw new TranslationError(
        "tool_choice",
        "none is not supported by the provider of this model after tools have been used",
      );
    return undefined;
  }
  return compact({
    tools: chat.tools.map(({ name, description, parameters, strict }) => ({
      toolSpec: compact({
        name,
        description,
        inputSchema: { json: parameters },
        strict: strict === true ? true : undefined,
      }),
    })),
    toolChoice:
      toolChoice === undefined
        ? undefined
        : toolChoice === "auto"
          ? { auto: {} }
          : toolChoice === "required"
            ? { any: {} }
            : { tool: { name: toolChoice.name } },
  });
}

function response(body: Members, context: TranslationContext): Members {
  const message = isMembers(body.output) && isMembers(body.output.message) ? body.output.message : undefined;
  if (message === undefined) throw new UpstreamAnswerError(502, "the provider's answer has no message");
  let text = "";
  let reasoning = "";
  const toolCalls: ChatToolCall[] = [];
  for (const block of Array.isArray(message.content) ? message.content.filter(isMembers) : []) {
    if (typeof block.text === "string") text += block.text;
    if (isMembers(block.reasoningContent) && isMembers(block.reasoningContent.reasoningText))
      reasoning += String(block.reasoningContent.reasoningText.text);
    if (isMembers(block.toolUse))
      toolCalls.push({
        id: String(block.toolUse.toolUseId),
        name: String(block.toolUse.name),
        arguments: JSON.stringify(block.toolUse.input ?? {}),
      });
  }
  return chatCompletion(
    context,
    undefined,
    undefined,
    [{ text, reasoning, toolCalls, finish: finishOf(body.stopReason) }],
    readUsage(body.usage),
  );
}

function finishOf(reason: unknown): Finish {
  switch (reason) {
    case "max_tokens":
    case "model_context_window_exceeded":
      return "length";
    case "tool_use":
      return "tool_calls";
    case "guardrail_intervened":
    case "content_filtered":
      return "content_filter";
    default:
      return "stop";
  }
}

function stream(context: TranslationContext): StreamTranslation {
  const chunks = createChunkWriter(context);
  let usage: unknown;
  let toolIndex = -1;
  /** A tool without arguments is called with an empty object; its stream says nothing at all. */
  let awaitsArguments = false;
  let finished = false;
  const argument = (text: unknown): OutEvent =>
    chunks.delta(0, { tool_calls: [{ index: toolIndex, function: { arguments: text } }] });
  return {
    event(type, data) {
      switch (type) {
        case "messageStart":
          return chunks.begin(undefined, undefined);
        case "contentBlockStart": {
          const tool = isMembers(data.start) && isMembers(data.start.toolUse) ? data.start.toolUse : undefined;
          if (!tool) return [];
          toolIndex += 1;
          awaitsArguments = true;
          return [
            chunks.delta(0, {
              tool_calls: [
                {
                  index: toolIndex,
                  id: tool.toolUseId,
                  type: "function",
                  function: { name: tool.name, arguments: "" },
                },
              ],
            }),
          ];
        }
        case "contentBlockDelta": {
          const delta = isMembers(data.delta) ? data.delta : {};
          if (typeof delta.text === "string") return [chunks.delta(0, { content: delta.text })];
          if (isMembers(delta.toolUse)) {
            if (delta.toolUse.input !== "") awaitsArguments = false;
            return [argument(delta.toolUse.input)];
          }
          if (isMembers(delta.reasoningContent) && typeof delta.reasoningContent.text === "string")
            return [chunks.delta(0, { reasoning_content: delta.reasoningContent.text })];
          return [];
        }
        case "contentBlockStop": {
          const isEmpty = awaitsArguments;
          awaitsArguments = false;
          return isEmpty ? [argument("{}")] : [];
        }
        case "messageStop":
          finished = true;
          return [chunks.finish(0, finishOf(data.stopReason))];
        case "metadata":
          usage = data.usage;
          return [];
        case "exception":
          throw new UpstreamAnswerError(500, errorMessage(data, ""));
        default:
          return [];
      }
    },
    end() {
      if (!finished) throw new UpstreamAnswerError(502, "the provider's stream ended early");
      return chunks.done(readUsage(usage));
    },
  };
}
