/**
 * A request of Gemini's generateContent in the common form. Google's API takes names in both spellings. A member that is
 * not understood is a loss.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import { putMember } from "../../../json/put-member.ts";
import type { AnswerFormat, Conversation, Thinking, Tool, ToolChoice } from "../../canonical/conversation.ts";
import { list, members, optionalNumber, optionalText, text } from "../../canonical/fields.ts";
import type { Losses } from "../../canonical/losses.ts";
import { readSettings } from "../../canonical/settings.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import { TranslationError } from "../../canonical/translation-error.ts";
import { readContents, readSystemInstruction } from "./client-contents.ts";

const KNOWN = new Set(["model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"]);
/** What Google blocks and how it keeps books: other providers have their own. */
const WITHOUT_EFFECT = new Set(["safetySettings", "labels", "store"]);
const CONFIG_KNOWN = new Set([
  ...["temperature", "topP", "topK", "candidateCount", "maxOutputTokens", "stopSequences", "seed"],
  ...["presencePenalty", "frequencyPenalty", "responseMimeType", "responseSchema", "responseJsonSchema"],
  ...["thinkingConfig", "_responseJsonSchema"],
]);

export function readGeminiRequest(original: Members, { losses }: TranslationContext): Conversation {
  const body = camelCase(original);
  if (body.cachedContent !== undefined && body.cachedContent !== null)
    throw new TranslationError("cachedContent", "a cache that is stored at Google cannot be used by another provider");
  for (const [name, value] of Object.entries(body))
    if (!KNOWN.has(name) && !WITHOUT_EFFECT.has(name) && value !== null) losses.lose(name, value);
  const config = isMembers(body.generationConfig) ? camelCase(body.generationConfig) : {};
  const at = (name: string): string => `generationConfig.${name}`;
  for (const [name, value] of Object.entries(config)) {
    const isText = name === "responseModalities" && JSON.stringify(value) === '["TEXT"]';
    if (!CONFIG_KNOWN.has(name) && !isText && value !== null) losses.lose(at(name), value);
  }
  const number = (name: string, neutral?: number) => {
    const value = optionalNumber(config[name], at(name));
    return { param: at(name), value: value === neutral ? undefined : value };
  };
  return {
    system: readSystemInstruction(body.systemInstruction),
    turns: readContents(isMembers(body.contents) ? [body.contents] : list(body.contents, "contents")),
    tools: readTools(body.tools, losses),
    toolChoice: readToolChoice(body.toolConfig),
    parallelTools: undefined,
    maxTokens: optionalNumber(config.maxOutputTokens, at("maxOutputTokens")),
    stop:
      config.stopSequences === undefined || config.stopSequences === null
        ? []
        : list(config.stopSequences, at("stopSequences")).map((one) => text(one, at("stopSequences"))),
    user: undefined,
    thinking: readThinking(config.thinkingConfig),
    format: readFormat(config),
    settings: readSettings({
      temperature: number("temperature"),
      topP: number("topP"),
      topK: number("topK"),
      seed: number("seed"),
      count: number("candidateCount", 1),
      presencePenalty: number("presencePenalty", 0),
      frequencyPenalty: number("frequencyPenalty", 0),
    }),
  };
}

function camelCase(value: Members): Members {
  if (!Object.keys(value).some((name) => name.includes("_", 1))) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [
      name.replace(/(?!^)_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
      member,
    ]),
  );
}

function readTools(value: unknown, losses: Losses): Tool[] {
  if (value === undefined || value === null) return [];
  return list(value, "tools").flatMap((one, i) => {
    const at = `tools[${i}]`;
    const tool = camelCase(members(one, at));
    for (const [name, member] of Object.entries(tool))
      if (name !== "functionDeclarations" && member !== null) losses.lose(`${at}.${name}`, member);
    if (tool.functionDeclarations === undefined || tool.functionDeclarations === null) return [];
    return list(tool.functionDeclarations, `${at}.functionDeclarations`).map((declared, j) => {
      const where = `${at}.functionDeclarations[${j}]`;
      const { name, description, parameters, parametersJsonSchema } = camelCase(members(declared, where));
      return {
        name: text(name, `${where}.name`),
        description: optionalText(description, `${where}.description`),
        parameters: isMembers(parametersJsonSchema)
          ? parametersJsonSchema
          : isMembers(parameters)
            ? (jsonSchema(parameters) as Members)
            : { type: "object", properties: {} },
        strict: undefined,
      };
    });
  });
}

/** Google's older schemas write types in capitals, numbers as strings, and `nullable`. */
export function jsonSchema(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(jsonSchema);
  if (!isMembers(value)) return value;
  const out: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    if (name === "type" && typeof member === "string") out.type = member.toLowerCase();
    else if (name === "nullable" || name === "propertyOrdering") continue;
    else if (/^(?:min|max)(?:Items|Length|Properties)$/.test(name)) out[name] = Number(member);
    else if (name === "properties" && isMembers(member))
      out[name] = Object.fromEntries(Object.entries(member).map(([key, schema]) => [key, jsonSchema(schema)]));
    else if (name === "enum" || name === "default" || name === "example" || name === "required") out[name] = member;
    else putMember(out, name, jsonSchema(member));
  }
  if (value.nullable === true && typeof out.type === "string") out.type = [out.type, "null"];
  return out;
}

function readToolChoice(value: unknown): ToolChoice | undefined {
  const config = isMembers(value) ? camelCase(value).functionCallingConfig : undefined;
  if (!isMembers(config)) return undefined;
  const { mode, allowedFunctionNames: names } = camelCase(config);
  switch (mode) {
    case "NONE":
      return "none";
    case "ANY":
    case "VALIDATED":
      return Array.isArray(names) && names.length === 1
        ? { name: String(names[0]) }
        : mode === "ANY"
          ? "required"
          : "auto";
    default:
      return undefined;
  }
}

function readThinking(value: unknown): Thinking | undefined {
  if (!isMembers(value)) return undefined;
  const { thinkingBudget, thinkingLevel } = camelCase(value);
  const param = "generationConfig.thinkingConfig";
  const budgetTokens = optionalNumber(thinkingBudget, `${param}.thinkingBudget`);
  const effort = optionalText(thinkingLevel, `${param}.thinkingLevel`)?.toLowerCase();
  if (budgetTokens === -1) return { param, isAdaptive: true };
  return budgetTokens === undefined && effort === undefined ? undefined : { param, budgetTokens, effort };
}

function readFormat(config: Members): AnswerFormat | undefined {
  const param = "generationConfig.responseMimeType";
  const schema = config.responseJsonSchema ?? config._responseJsonSchema ?? config.responseSchema;
  if (isMembers(schema)) return { kind: "schema", param, name: "answer", schema: jsonSchema(schema) as Members };
  return config.responseMimeType === "application/json" ? { kind: "json", param } : undefined;
}
