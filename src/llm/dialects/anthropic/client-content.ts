/**
 * The messages of an Anthropic request as turns. A block that is not understood is refused by name; a member that is not
 * understood is a loss.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import {
  type ContentPart,
  type Part,
  type TextPart,
  type ToolResultPart,
  type Turn,
  TurnList,
} from "../../canonical/conversation.ts";
import { list, members, optionalText, text } from "../../canonical/fields.ts";
import { type Losses, NOT_SUPPORTED } from "../../canonical/losses.ts";
import { readSignature } from "../../canonical/signature.ts";
import { TranslationError } from "../../canonical/translation-error.ts";

export function readSystem(system: unknown, at: string): TextPart[] {
  if (system === undefined || system === null) return [];
  if (typeof system === "string") return system === "" ? [] : [{ kind: "text", text: system }];
  return list(system, at).map((value, i) => {
    const block = members(value, `${at}[${i}]`);
    return { kind: "text", text: text(block.text, `${at}[${i}].text`), ...cacheMark(block) };
  });
}

/** `system`: instructions that stand among the messages are added to it. */
export function readTurns(messages: readonly unknown[], system: TextPart[], losses: Losses): Turn[] {
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
    content === undefined || content === null
      ? []
      : typeof content === "string"
        ? [{ kind: "text", text: content }]
        : list(content, `${where}.content`).flatMap((value, i) => {
            const at = `${where}.content[${i}]`;
            const inner = members(value, at);
            // What a tool found, named for a search that only Anthropic has.
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
