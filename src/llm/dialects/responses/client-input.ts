/**
 * The input of an OpenAI Responses request as turns: messages, calls of tools and what came of them, thoughts. An item
 * that is not understood is refused by name.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import { type ContentPart, type Part, type TextPart, type Turn, TurnList } from "../../canonical/conversation.ts";
import { list, members, optionalText, parseArguments, parseDataUrl, text } from "../../canonical/fields.ts";
import { NOT_SUPPORTED } from "../../canonical/losses.ts";
import { readSignature } from "../../canonical/signature.ts";
import { TranslationError } from "../../canonical/translation-error.ts";

/** `system`: instructions that stand among the input are added to it. */
export function readInput(input: unknown, system: TextPart[]): Turn[] {
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
        turns.add("assistant", [readCall(item, at, toolNames)]);
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

function readCall(item: Members, at: string, toolNames: Map<string, string>): Part {
  const id = text(item.call_id, `${at}.call_id`);
  const name = text(item.name, `${at}.name`);
  toolNames.set(id, name);
  const input =
    item.type === "custom_tool_call"
      ? { input: text(item.input, `${at}.input`) }
      : parseArguments(item.arguments, `${at}.arguments`);
  return { kind: "toolCall", id, name, input };
}

function readOutput(item: Members, at: string, toolNames: Map<string, string>): Part {
  const id = text(item.call_id, `${at}.call_id`);
  const parts = readContent(item.output, `${at}.output`);
  return { kind: "toolResult", id, name: toolNames.get(id), parts, isError: false };
}

/** The seal that we put there stands before it; another one is OpenAI's own. */
function readReasoning(item: Members): Part[] {
  const signature = readSignature(item.encrypted_content, undefined);
  if (signature === undefined) return [];
  const summary = Array.isArray(item.summary) ? item.summary.filter(isMembers) : [];
  const said = summary.map((part) => (typeof part.text === "string" ? part.text : "")).join("");
  return [{ kind: "thought", text: said, signature, isRedacted: said === "" && summary.length === 0 }];
}

function readContent(content: unknown, at: string): ContentPart[] {
  if (content === undefined || content === null) return [];
  if (typeof content === "string") return [{ kind: "text", text: content }];
  return list(content, at).map((value, i) => readPart(members(value, `${at}[${i}]`), `${at}[${i}]`));
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
