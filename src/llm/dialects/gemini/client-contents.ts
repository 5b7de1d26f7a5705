/**
 * The contents of a Gemini request as turns. Calls of tools often have no ids here: they are numbered, and results belong
 * to the calls of the same name in their order. A part that is not understood is refused by name.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import { type ContentPart, type Part, type TextPart, type Turn, TurnList } from "../../canonical/conversation.ts";
import { list, members, optionalText, text, textOrNothing } from "../../canonical/fields.ts";
import { NOT_SUPPORTED } from "../../canonical/losses.ts";
import { readSignature } from "../../canonical/signature.ts";
import { TranslationError } from "../../canonical/translation-error.ts";

export function readSystemInstruction(value: unknown): TextPart[] {
  if (value === undefined || value === null) return [];
  if (typeof value === "string") return value === "" ? [] : [{ kind: "text", text: value }];
  const { parts } = members(value, "systemInstruction");
  return listOf(parts, "systemInstruction.parts").map((part, i) => ({
    kind: "text",
    text: text(members(part, `systemInstruction.parts[${i}]`).text, `systemInstruction.parts[${i}].text`),
  }));
}

export function readContents(contents: readonly unknown[]): Turn[] {
  const turns = new TurnList();
  const calls = new OpenCalls();
  for (const [i, value] of contents.entries()) {
    const at = `contents[${i}]`;
    const content = members(value, at);
    const role = content.role ?? "user";
    if (role !== "user" && role !== "model" && role !== "function")
      throw new TranslationError(`${at}.role`, "must be user or model");
    const parts = listOf(content.parts, `${at}.parts`).flatMap((part, j) =>
      readPart(members(part, `${at}.parts[${j}]`), `${at}.parts[${j}]`, calls),
    );
    turns.add(role === "model" ? "assistant" : "user", parts);
  }
  return turns.turns;
}

/** Calls that have no result yet. */
class OpenCalls {
  readonly #open: { readonly id: string; readonly name: string }[] = [];
  #count = 0;

  called(id: string | undefined, name: string): string {
    const known = id ?? `call_${++this.#count}`;
    this.#open.push({ id: known, name });
    return known;
  }

  /** The id of the call that this is the result of. */
  answered(id: string | undefined, name: string): string {
    const at = this.#open.findIndex((one) => (id === undefined ? one.name === name : one.id === id));
    const [found] = at < 0 ? [] : this.#open.splice(at, 1);
    return found?.id ?? id ?? `call_${++this.#count}`;
  }
}

function readPart(part: Members, at: string, calls: OpenCalls): Part[] {
  const called = part.functionCall ?? part.function_call;
  const result = part.functionResponse ?? part.function_response;
  const signature = readSignature(part.thoughtSignature ?? part.thought_signature, "google");
  if (isMembers(called)) {
    const name = text(called.name, `${at}.functionCall.name`);
    const input = isMembers(called.args) ? called.args : {};
    return [{ kind: "toolCall", id: calls.called(textOrNothing(called.id), name), name, input, signature }];
  }
  if (isMembers(result)) {
    const name = text(result.name, `${at}.functionResponse.name`);
    const response = isMembers(result.response) ? result.response : {};
    const isError = textOrNothing(response.error) !== undefined && Object.keys(response).length === 1;
    const seen = result.parts === undefined ? [] : listOf(result.parts, `${at}.functionResponse.parts`);
    return [
      {
        kind: "toolResult",
        id: calls.answered(textOrNothing(result.id), name),
        name,
        parts: [
          { kind: "text", text: resultText(response) },
          ...seen.flatMap((one, i) => readData(members(one, `${at}.functionResponse.parts[${i}]`), at)),
        ],
        isError,
      },
    ];
  }
  if (typeof part.text === "string") {
    if (part.thought !== true) return [{ kind: "text", text: part.text }];
    return signature === undefined ? [] : [{ kind: "thought", text: part.text, signature, isRedacted: false }];
  }
  const data = readData(part, at);
  if (data.length > 0) return data;
  // A signature may stand alone.
  if (signature !== undefined && Object.keys(part).every((name) => /^thought/.test(name))) return [];
  throw new TranslationError(at, `${JSON.stringify(Object.keys(part)[0] ?? "{}")} ${NOT_SUPPORTED}`);
}

function readData(part: Members, at: string): ContentPart[] {
  const inline = part.inlineData ?? part.inline_data;
  const file = part.fileData ?? part.file_data;
  if (isMembers(inline)) {
    const mediaType = text(inline.mimeType ?? inline.mime_type, `${at}.inlineData.mimeType`);
    const source = { mediaType, data: text(inline.data, `${at}.inlineData.data`) };
    if (mediaType.startsWith("image/")) return [{ kind: "image", source }];
    return [{ kind: "file", source, name: optionalText(inline.displayName, `${at}.inlineData.displayName`) }];
  }
  if (isMembers(file)) {
    const url = text(file.fileUri ?? file.file_uri, `${at}.fileData.fileUri`);
    const type = String(file.mimeType ?? file.mime_type ?? "image/");
    if (!/^https?:/.test(url) || /generativelanguage\.googleapis\.com\/.*\/files\//.test(url))
      throw new TranslationError(
        `${at}.fileData`,
        "a file that is stored at Google cannot be sent to another provider",
      );
    return [
      type.startsWith("image/")
        ? { kind: "image", source: { url } }
        : { kind: "file", source: { url }, name: undefined },
    ];
  }
  return [];
}

/** `{output: …}`, `{result: …}` and `{error: …}` are how Google's own SDKs wrap a text. */
function resultText(response: Members): string {
  const names = Object.keys(response);
  const only = names.length === 1 ? response[names[0] as string] : undefined;
  return typeof only === "string" && /^(?:output|result|error)$/.test(names[0] as string)
    ? only
    : JSON.stringify(response);
}

/** Google's API takes one thing where a list is meant. */
function listOf(value: unknown, at: string): readonly unknown[] {
  if (value === undefined || value === null) return [];
  return isMembers(value) ? [value] : list(value, at);
}
