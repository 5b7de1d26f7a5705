/**
 * The common form as a request of Gemini's generateContent.
 */
import { lookupTable } from "../../../base/lookup-table.ts";
import { isMembers, type Members } from "../../../json/json.ts";
import {
  type ContentPart,
  type Conversation,
  type Part,
  resultText,
  type Source,
  sayable,
  type ToolChoice,
} from "../../canonical/conversation.ts";
import { budgetOf } from "../../canonical/effort.ts";
import { compact } from "../../canonical/fields.ts";
import { type Losses, NOT_SUPPORTED } from "../../canonical/losses.ts";
import { writeSettings } from "../../canonical/settings.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import { TranslationError } from "../../canonical/translation-error.ts";

const MEDIA_TYPES = lookupTable<string>({
  png: "image/png",
  webp: "image/webp",
  gif: "image/gif",
  heic: "image/heic",
  heif: "image/heif",
  pdf: "application/pdf",
});

export function writeGeminiRequest(asked: Conversation, context: TranslationContext): Members {
  const { losses, model } = context;
  return compact({
    systemInstruction: asked.system.length === 0 ? undefined : { parts: asked.system.map(({ text }) => ({ text })) },
    contents: sayable(asked.turns, isForGemini).map(({ role, parts }) => ({
      role: role === "assistant" ? "model" : "user",
      parts: partsOf(parts, model),
    })),
    tools:
      asked.tools.length === 0
        ? undefined
        : [
            {
              functionDeclarations: asked.tools.map(({ name, description, parameters }) =>
                compact({ name, description, parametersJsonSchema: parameters }),
              ),
            },
          ],
    toolConfig: asked.tools.length === 0 ? undefined : toolConfig(asked.toolChoice),
    generationConfig: generationConfig(asked, losses),
  });
}

function isForGemini(part: Part): boolean {
  return part.kind !== "thought" || (part.signature.signer === "google" && !part.isRedacted);
}

/**
 * Models that sign their thoughts want the signature of the first call of a turn back. A history that another model
 * wrote has none; Google names this text for that case.
 */
const UNSIGNED = "skip_thought_signature_validator";

function partsOf(parts: readonly Part[], model: string): Members[] {
  const firstCall = parts.findIndex(({ kind }) => kind === "toolCall");
  return parts.flatMap((part, i) => {
    const [mapped = {}, ...more] = partOf(part);
    const wantsSignature = i === firstCall && /gemini-3/.test(model) && mapped.thoughtSignature === undefined;
    return [wantsSignature ? { ...mapped, thoughtSignature: UNSIGNED } : mapped, ...more];
  });
}

function partOf(part: Part): Members[] {
  switch (part.kind) {
    case "toolCall":
      return [
        compact({
          functionCall: { name: part.name, args: part.input },
          thoughtSignature: part.signature?.signer === "google" ? part.signature.value : undefined,
        }),
      ];
    case "toolResult": {
      if (part.name === undefined)
        throw new TranslationError(
          "messages",
          `the result of the tool call ${JSON.stringify(part.id)} has no call before it`,
        );
      const text = resultText(part, true);
      const response = part.isError ? { error: text } : resultOf(text);
      // Images that a tool found stand beside its result.
      const seen = part.parts.filter(({ kind }) => kind !== "text").map(contentOf);
      return [{ functionResponse: { name: part.name, response } }, ...seen];
    }
    case "thought":
      return [{ text: part.text, thought: true, thoughtSignature: part.signature.value }];
    default:
      return [contentOf(part)];
  }
}

function contentOf(part: ContentPart): Members {
  if (part.kind === "text") return { text: part.text };
  return dataOf(part.source);
}

function dataOf(source: Source): Members {
  if ("url" in source) return { fileData: { mimeType: mediaTypeOf(source.url), fileUri: source.url } };
  return { inlineData: { mimeType: source.mediaType, data: source.data } };
}

/** The provider wants an object: a result that is one goes as it is. */
function resultOf(text: string): Members {
  try {
    const parsed: unknown = JSON.parse(text);
    if (isMembers(parsed)) return parsed;
  } catch {
    // Plain text.
  }
  return { result: text };
}

function mediaTypeOf(url: string): string {
  const ending = /\.([a-z]+)(?:$|[?#])/i.exec(url)?.[1]?.toLowerCase() ?? "";
  return MEDIA_TYPES[ending] ?? "image/jpeg";
}

function toolConfig(choice: ToolChoice | undefined): Members | undefined {
  if (choice === undefined) return undefined;
  const mode = choice === "auto" ? "AUTO" : choice === "none" ? "NONE" : "ANY";
  return {
    functionCallingConfig: compact({
      mode,
      allowedFunctionNames: typeof choice === "object" ? [choice.name] : undefined,
    }),
  };
}

function generationConfig(asked: Conversation, losses: Losses): Members | undefined {
  const { format, maxTokens, stop, settings } = asked;
  if (asked.parallelTools === false && asked.tools.length > 0) losses.lose("parallel_tool_calls", false);
  const config = compact({
    ...writeSettings(
      settings,
      {
        temperature: "temperature",
        topP: "topP",
        topK: "topK",
        seed: "seed",
        count: "candidateCount",
        presencePenalty: "presencePenalty",
        frequencyPenalty: "frequencyPenalty",
      },
      losses,
    ),
    maxOutputTokens: maxTokens,
    stopSequences: stop.length === 0 ? undefined : stop,
    responseMimeType: format === undefined ? undefined : "application/json",
    responseJsonSchema: format?.kind === "schema" ? format.schema : undefined,
    thinkingConfig: thinkingConfig(asked, losses),
  });
  return Object.keys(config).length === 0 ? undefined : config;
}

/** Without `includeThoughts` the thoughts are made and paid for, and never seen. */
function thinkingConfig({ thinking }: Conversation, losses: Losses): Members | undefined {
  if (thinking === undefined) return undefined;
  if (thinking.isAdaptive && thinking.effort === undefined) return { includeThoughts: true, thinkingBudget: -1 };
  const budget = budgetOf(thinking);
  if (budget === undefined) {
    losses.lose(thinking.param, thinking.effort, `${JSON.stringify(thinking.effort)} ${NOT_SUPPORTED}`);
    return undefined;
  }
  return budget === 0 ? { thinkingBudget: 0 } : { includeThoughts: true, thinkingBudget: budget };
}
