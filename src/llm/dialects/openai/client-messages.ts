/**
 * The messages of an OpenAI chat request as instructions and turns: who said what, which tools were called and what
 * came of it. A part that is not understood is refused by name; a member that is not understood is a loss.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import {
  type ContentPart,
  type Part,
  type TextPart,
  type ToolCallPart,
  type Turn,
  TurnList,
} from "../../canonical/conversation.ts";
import { list, members, optionalText, parseArguments, parseDataUrl, text } from "../../canonical/fields.ts";
import { type Losses, NOT_SUPPORTED } from "../../canonical/losses.ts";
import { readSignature, type Signature } from "../../canonical/signature.ts";
import { TranslationError } from "../../canonical/translation-error.ts";

/** Members of a message that are read, or that only repeat what a model said of its answer. */
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

export function readMessages(messages: readonly unknown[], losses: Losses): { system: TextPart[]; turns: Turn[] } {
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
        const calls = readToolCalls(message, at);
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
  const said =
    message.content === null || message.content === undefined ? [] : readContent(message.content, `${at}.content`);
  const refusal = optionalText(message.refusal, `${at}.refusal`);
  // What the model said instead of an answer is what it said.
  return refusal === undefined || refusal === "" ? said : [...said, { kind: "text", text: refusal }];
}

/** Nothing that somebody wrote for the model is left out silently. */
function loseUnknown(message: Members, at: string, losses: Losses): void {
  for (const [name, value] of Object.entries(message)) {
    // The name of a tool is that of its call.
    const isKnown = MESSAGE_KNOWN.has(name) || (name === "name" && message.role === "tool");
    if (!isKnown && value !== null && name !== "function_call") losses.lose(`${at}.${name}`, value);
  }
}

function readToolCalls(message: Members, at: string): ToolCallPart[] {
  if (message.function_call !== undefined && message.function_call !== null)
    throw new TranslationError(`${at}.function_call`, "is not supported; use tool_calls");
  if (message.tool_calls === undefined || message.tool_calls === null) return [];
  return list(message.tool_calls, `${at}.tool_calls`).map((value, j) => {
    const where = `${at}.tool_calls[${j}]`;
    const call = members(value, where);
    if (call.type !== undefined && call.type !== "function")
      throw new TranslationError(`${where}.type`, "must be function");
    const called = members(call.function, `${where}.function`);
    return {
      kind: "toolCall",
      id: text(call.id, `${where}.id`),
      name: text(called.name, `${where}.function.name`),
      input: parseArguments(called.arguments, `${where}.function.arguments`),
      signature: signatureOf(call),
    };
  });
}

/** Gemini's signature of a thought travels with the call, as in Google's own OpenAI-compatible API. */
function signatureOf(call: Members): Signature | undefined {
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
    // Thoughts that some servers write into the content: nobody else can use them.
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
