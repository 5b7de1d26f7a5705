/**
 * The common form as an Anthropic messages request.
 */

import type { Members } from "../../../json/json.ts";
import {
  type ContentPart,
  type Conversation,
  type Part,
  sayable,
  type ToolResultPart,
  type Turn,
} from "../../canonical/conversation.ts";
import { compact } from "../../canonical/fields.ts";
import { writeSettings } from "../../canonical/settings.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import { TranslationError } from "../../canonical/translation-error.ts";
import { claudeMaxTokens, claudeThinking } from "./claude-models.ts";

export function writeMessagesRequest(asked: Conversation, context: TranslationContext): Members {
  const { losses, model } = context;
  const turns = sayable(asked.turns, isForClaude);
  const { thinking, effort, minTokens } = claudeThinking(asked.thinking, model, losses, lacksThoughts(turns));
  const format = asked.format?.kind === "schema" ? asked.format : undefined;
  if (asked.format?.kind === "json")
    losses.lose(
      asked.format.param,
      { type: "json_object" },
      "json_object is not supported by the provider of this model; use json_schema",
    );
  const output = compact({ effort, format: format && { type: "json_schema", schema: format.schema } });
  return compact({
    model,
    max_tokens: Math.max(asked.maxTokens ?? claudeMaxTokens(model), minTokens),
    system:
      asked.system.length === 0
        ? undefined
        : asked.system.map((part) => compact({ type: "text", text: part.text, cache_control: part.cacheControl })),
    messages: turns.map(({ role, parts }) => ({ role, content: parts.map(blockOf) })),
    tools:
      asked.tools.length === 0
        ? undefined
        : asked.tools.map(({ name, description, parameters, strict, cacheControl }) =>
            compact({
              name,
              description,
              input_schema: parameters.type === undefined ? { type: "object", ...parameters } : parameters,
              strict: strict === true ? true : undefined,
              cache_control: cacheControl,
            }),
          ),
    tool_choice: toolChoice(asked),
    thinking,
    output_config: Object.keys(output).length === 0 ? undefined : output,
    stop_sequences: asked.stop.length === 0 ? undefined : asked.stop,
    metadata: asked.user === undefined ? undefined : { user_id: asked.user },
    ...writeSettings(asked.settings, { temperature: "temperature", topP: "top_p", topK: "top_k" }, losses),
    stream: context.stream ? true : undefined,
  });
}

function isForClaude(part: Part): boolean {
  return part.kind !== "thought" || part.signature.signer === "anthropic";
}

/** Thinking models want the thought before a call back with its result; a history of another model has none. */
function lacksThoughts(turns: readonly Turn[]): boolean {
  const last = turns.findLast(({ role }) => role === "assistant");
  return last?.parts.some(({ kind }) => kind === "toolCall") === true && last.parts[0]?.kind !== "thought";
}

function blockOf(part: Part): Members {
  switch (part.kind) {
    case "toolCall":
      return { type: "tool_use", id: part.id, name: part.name, input: part.input };
    case "toolResult":
      return compact({
        type: "tool_result",
        tool_use_id: part.id,
        content: resultContent(part),
        is_error: part.isError ? true : undefined,
        cache_control: part.cacheControl,
      });
    case "thought":
      return part.isRedacted
        ? { type: "redacted_thinking", data: part.signature.value }
        : { type: "thinking", thinking: part.text, signature: part.signature.value };
    default:
      return contentOf(part);
  }
}

function resultContent({ parts }: ToolResultPart): unknown {
  if (parts.every(({ kind }) => kind === "text"))
    return parts.map((part) => (part.kind === "text" ? part.text : "")).join("\n");
  return parts
    .filter((part) => part.kind !== "text" || part.text !== "")
    .map((part) => contentOf({ ...part, cacheControl: undefined }));
}

function contentOf(part: ContentPart): Members {
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
      return compact({
        type: "document",
        source: fileSource(part.source),
        title: part.name,
        cache_control: part.cacheControl,
      });
  }
}

function fileSource(source: Extract<ContentPart, { kind: "file" }>["source"]): Members {
  if ("url" in source) return { type: "url", url: source.url };
  if (source.mediaType === "text/plain")
    return { type: "text", media_type: "text/plain", data: Buffer.from(source.data, "base64").toString("utf8") };
  if (source.mediaType !== "application/pdf")
    throw new TranslationError(
      "messages",
      `files of type ${source.mediaType} are not supported by the provider of this model`,
    );
  return { type: "base64", media_type: "application/pdf", data: source.data };
}

function toolChoice({ toolChoice: choice, parallelTools, tools }: Conversation): Members | undefined {
  if (tools.length === 0) return undefined;
  const oneAtATime = parallelTools === false ? { disable_parallel_tool_use: true } : {};
  if (choice === undefined) return parallelTools === false ? { type: "auto", ...oneAtATime } : undefined;
  if (choice === "none") return { type: "none" };
  if (choice === "auto") return { type: "auto", ...oneAtATime };
  if (choice === "required") return { type: "any", ...oneAtATime };
  return { type: "tool", name: choice.name, ...oneAtATime };
}
