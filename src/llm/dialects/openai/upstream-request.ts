/**
 * The common form as an OpenAI chat request. Servers of this dialect differ in some members (`ChatHabits`).
 */

import type { Members } from "../../../json/json.ts";
import {
  type AnswerFormat,
  type ContentPart,
  type Conversation,
  resultText,
  sayable,
  type ToolChoice,
  type Turn,
} from "../../canonical/conversation.ts";
import { effortOf } from "../../canonical/effort.ts";
import { compact, urlOf } from "../../canonical/fields.ts";
import { writeSettings } from "../../canonical/settings.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import { TranslationError } from "../../canonical/translation-error.ts";

/** Its highest word; others have more. */
const EFFORT_NAMES: Readonly<Record<string, string>> = { max: "xhigh" };

export function writeChatRequest(asked: Conversation, context: TranslationContext): Members {
  const { chat, losses } = context;
  const system = asked.system.map(({ text }) => text).join("\n\n");
  const effort = asked.thinking && effortOf(asked.thinking);
  return compact({
    model: context.model,
    messages: [
      ...(system === "" ? [] : [{ role: "system", content: system }]),
      ...sayable(asked.turns, ({ kind }) => kind !== "thought").flatMap(messagesOf),
    ],
    [chat.maxTokens]: asked.maxTokens,
    stop: asked.stop.length === 0 ? undefined : asked.stop,
    tools:
      asked.tools.length === 0
        ? undefined
        : asked.tools.map(({ name, description, parameters, strict }) => ({
            type: "function",
            function: compact({ name, description, parameters, strict: strict === true ? true : undefined }),
          })),
    tool_choice: asked.toolChoice && toolChoice(asked.toolChoice, chat.required),
    parallel_tool_calls: asked.parallelTools === false && asked.tools.length > 0 ? false : undefined,
    user: chat.user ? asked.user : undefined,
    reasoning_effort: effort === undefined ? undefined : (EFFORT_NAMES[effort] ?? effort),
    response_format: asked.format && responseFormat(asked.format),
    ...writeSettings(
      asked.settings,
      {
        temperature: "temperature",
        topP: "top_p",
        ...(chat.topK ? { topK: "top_k" } : {}),
        seed: chat.seed,
        count: "n",
        presencePenalty: "presence_penalty",
        frequencyPenalty: "frequency_penalty",
        verbosity: "verbosity",
        serviceTier: "service_tier",
      },
      losses,
    ),
    stream: context.stream ? true : undefined,
  });
}

function messagesOf({ role, parts }: Turn): Members[] {
  return role === "assistant" ? [assistantMessage(parts)] : userMessages(parts);
}

function assistantMessage(parts: Turn["parts"]): Members {
  const texts: string[] = [];
  const calls: Members[] = [];
  for (const part of parts) {
    if (part.kind === "text") texts.push(part.text);
    else if (part.kind === "toolCall")
      calls.push({
        id: part.id,
        type: "function",
        function: { name: part.name, arguments: JSON.stringify(part.input) },
      });
    else if (part.kind !== "thought")
      throw new TranslationError(
        "messages",
        "an assistant's message can only hold text for the provider of this model",
      );
  }
  return compact({
    role: "assistant",
    content: texts.length === 0 ? null : texts.join(""),
    tool_calls: calls.length === 0 ? undefined : calls,
  });
}

/** Results of tools are messages of their own here, before what the user says with them; they can only be text. */
function userMessages(parts: Turn["parts"]): Members[] {
  const results: Members[] = [];
  const said: Members[] = [];
  for (const part of parts) {
    if (part.kind === "toolResult") {
      results.push({ role: "tool", tool_call_id: part.id, content: resultText(part, false) });
      const seen = part.parts.filter(({ kind }) => kind !== "text");
      if (seen.length > 0) said.push({ type: "text", text: `Of the result of the tool call ${part.id}:` });
      said.push(...seen.map(contentOf));
    } else if (part.kind !== "toolCall" && part.kind !== "thought") said.push(contentOf(part));
  }
  const only = said.length === 1 && said[0]?.type === "text" ? said[0].text : undefined;
  return [...results, ...(said.length === 0 ? [] : [{ role: "user", content: only ?? said }])];
}

function contentOf(part: ContentPart): Members {
  switch (part.kind) {
    case "text":
      return { type: "text", text: part.text };
    case "image":
      return { type: "image_url", image_url: { url: urlOf(part.source) } };
    case "file":
      if ("url" in part.source)
        throw new TranslationError("messages", "the provider of this model takes files only with their content");
      if (part.source.mediaType.startsWith("audio/"))
        return {
          type: "input_audio",
          input_audio: { data: part.source.data, format: part.source.mediaType.includes("wav") ? "wav" : "mp3" },
        };
      return { type: "file", file: { filename: part.name ?? "document.pdf", file_data: urlOf(part.source) } };
  }
}

function toolChoice(choice: ToolChoice, required: string): unknown {
  if (typeof choice === "object") return { type: "function", function: { name: choice.name } };
  return choice === "required" ? required : choice;
}

function responseFormat(format: AnswerFormat): Members {
  if (format.kind === "json") return { type: "json_object" };
  return { type: "json_schema", json_schema: { name: format.name, schema: format.schema, strict: true } };
}
