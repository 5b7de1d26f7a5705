/**
 * The messages of an OpenAI chat request as instructions and turns: who said what, which tools were called and what
 * came of it. A member or a part that is not understood is refused by name.
 */
import { isMembers, type Members } from "../wire/json.ts";
import { type EncodedData, list, members, optionalText, parseArguments, parseDataUrl, text } from "./fields.ts";
import { TranslationError } from "./translation.ts";

export type Part =
  | { readonly kind: "text"; readonly text: string; readonly cacheControl?: unknown }
  | { readonly kind: "image"; readonly source: EncodedData | { readonly url: string }; readonly cacheControl?: unknown }
  | {
      readonly kind: "file";
      readonly source: EncodedData;
      readonly name: string | undefined;
      readonly cacheControl?: unknown;
    }
  | {
      readonly kind: "toolCall";
      readonly id: string;
      readonly name: string;
      readonly input: Members;
      readonly signature?: string | undefined;
    }
  | {
      readonly kind: "toolResult";
      readonly id: string;
      readonly name: string | undefined;
      readonly text: string;
      readonly cacheControl?: unknown;
    };

export interface Turn {
  readonly role: "user" | "assistant";
  readonly parts: readonly Part[];
}

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

export function readMessages(messages: readonly unknown[]): {
  system: Extract<Part, { kind: "text" }>[];
  turns: Turn[];
} {
  const system: Extract<Part, { kind: "text" }>[] = [];
  const turns: { role: Turn["role"]; parts: Part[] }[] = [];
  const toolNames = new Map<string, string>();
  const add = (role: Turn["role"], parts: readonly Part[]): void => {
    const last = turns.at(-1);
    // Results of tools and what the user says next are one turn for providers that want turns to alternate.
    if (last && last.role === role) last.parts.push(...parts);
    else turns.push({ role, parts: [...parts] });
  };
  for (const [i, value] of messages.entries()) {
    const at = `messages[${i}]`;
    const message = members(value, at);
    refuseUnknown(message, at);
    switch (message.role) {
      case "system":
      case "developer":
        for (const part of readContent(message.content, `${at}.content`)) {
          if (part.kind !== "text") throw new TranslationError(`${at}.content`, "instructions can only be text");
          system.push(part);
        }
        break;
      case "user":
        add("user", readContent(message.content, `${at}.content`));
        break;
      case "assistant": {
        const calls = readToolCalls(message, at);
        for (const call of calls) toolNames.set(call.id, call.name);
        const refusal = optionalText(message.refusal, `${at}.refusal`);
        add("assistant", [
          ...(message.content === null || message.content === undefined
            ? []
            : readContent(message.content, `${at}.content`)),
          // What the model said instead of an answer is what it said.
          ...(refusal === undefined || refusal === "" ? [] : [{ kind: "text", text: refusal } as const]),
          ...calls,
        ]);
        break;
      }
      case "tool": {
        const id = text(message.tool_call_id, `${at}.tool_call_id`);
        let cacheControl = message.cache_control;
        const result = readContent(message.content, `${at}.content`).map((part) => {
          if (part.kind !== "text")
            throw new TranslationError(`${at}.content`, "the result of a tool can only be text");
          cacheControl = part.cacheControl ?? cacheControl;
          return part.text;
        });
        add("user", [{ kind: "toolResult", id, name: toolNames.get(id), text: result.join("\n"), cacheControl }]);
        break;
      }
      default:
        throw new TranslationError(`${at}.role`, "must be system, developer, user, assistant or tool");
    }
  }
  return { system, turns };
}

/** Nothing that somebody wrote for the model is left out silently. */
function refuseUnknown(message: Members, at: string): void {
  for (const [name, value] of Object.entries(message)) {
    // The name of a tool is that of its call.
    const isKnown = MESSAGE_KNOWN.has(name) || (name === "name" && message.role === "tool");
    if (!isKnown && value !== null && name !== "function_call")
      throw new TranslationError(`${at}.${name}`, "is not supported by the provider of this model");
  }
}

function readToolCalls(message: Members, at: string): Extract<Part, { kind: "toolCall" }>[] {
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
function signatureOf(call: Members): string | undefined {
  const google = isMembers(call.extra_content) ? call.extra_content.google : undefined;
  return isMembers(google) && typeof google.thought_signature === "string" ? google.thought_signature : undefined;
}

function readContent(content: unknown, at: string): Part[] {
  if (typeof content === "string") return content === "" ? [] : [{ kind: "text", text: content }];
  return list(content, at).map((value, i) => readPart(members(value, `${at}[${i}]`), `${at}[${i}]`));
}

function readPart(part: Members, at: string): Part {
  const cache = part.cache_control === undefined ? {} : { cacheControl: part.cache_control };
  switch (part.type) {
    case "text":
      return { kind: "text", text: text(part.text, `${at}.text`), ...cache };
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
      throw new TranslationError(
        `${at}.type`,
        `${JSON.stringify(part.type)} is not supported by the provider of this model`,
      );
  }
}
