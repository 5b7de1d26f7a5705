/**
 * A chat client and a provider that speaks Gemini's generateContent.
 */
import { lookupTable } from "../../lib/text/lookup-table.ts";
import { errorMessage } from "../dialects/error-shape.ts";
import { readUsage } from "../usage/usage.ts";
import { isMembers, type Members } from "../wire/json.ts";
import {
  type ChatChoice,
  type ChatToolCall,
  chatCompletion,
  createChunkWriter,
  type Finish,
  toolCall,
} from "./chat-answer.ts";
import type { Part } from "./chat-messages.ts";
import { type ChatRequest, readChatRequest, requireSettings, type ToolChoice } from "./chat-request.ts";
import { compact } from "./fields.ts";
import {
  type OutEvent,
  type StreamTranslation,
  type Translation,
  type TranslationContext,
  TranslationError,
  UpstreamAnswerError,
} from "./translation.ts";

/** Thought budgets for the efforts of chat clients, as in Google's own OpenAI-compatible API. */
const THINKING_BUDGETS = lookupTable<number>({
  none: 0,
  minimal: 512,
  low: 1024,
  medium: 8192,
  high: 24_576,
});
const FILTERED = new Set([
  "SAFETY",
  "RECITATION",
  "BLOCKLIST",
  "PROHIBITED_CONTENT",
  "SPII",
  "IMAGE_SAFETY",
  "LANGUAGE",
]);
const IMAGE_TYPES = lookupTable<string>({
  png: "image/png",
  webp: "image/webp",
  gif: "image/gif",
  heic: "image/heic",
  heif: "image/heif",
});

export const chatToGemini: Translation = { request, response, stream };

function request(body: Members, context: TranslationContext): Members {
  const chat = readChatRequest(body);
  requireSettings(chat, [
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "response_format",
  ]);
  return compact({
    systemInstruction: chat.system.length === 0 ? undefined : { parts: chat.system.map(({ text }) => ({ text })) },
    contents: chat.turns.map(({ role, parts }) => ({
      role: role === "assistant" ? "model" : "user",
      parts: partsOf(parts, context.model),
    })),
    tools:
      chat.tools.length === 0
        ? undefined
        : [
            {
              functionDeclarations: chat.tools.map(({ name, description, parameters }) =>
                compact({ name, description, parametersJsonSchema: parameters }),
              ),
            },
          ],
    toolConfig: toolConfig(chat.toolChoice),
    generationConfig: generationConfig(chat),
  });
}

/**
 * Models that sign their thoughts want the signature of the first call of a turn back. A history that another model
 * wrote has none; Google names this text for that case.
 */
const UNSIGNED = "skip_thought_signature_validator";

function partsOf(parts: readonly Part[], model: string): Members[] {
  const firstCall = parts.findIndex(({ kind }) => kind === "toolCall");
  return parts.map((part, i) => {
    const mapped = partOf(part);
    const wantsSignature = i === firstCall && model.startsWith("gemini-3") && mapped.thoughtSignature === undefined;
    return wantsSignature ? { ...mapped, thoughtSignature: UNSIGNED } : mapped;
  });
}

function partOf(part: Part): Members {
  switch (part.kind) {
    case "text":
      return { text: part.text };
    case "image":
      if ("url" in part.source) return { fileData: { mimeType: imageType(part.source.url), fileUri: part.source.url } };
      return { inlineData: { mimeType: part.source.mediaType, data: part.source.data } };
    case "file":
      return { inlineData: { mimeType: part.source.mediaType, data: part.source.data } };
    case "toolCall":
      return compact({ functionCall: { name: part.name, args: part.input }, thoughtSignature: part.signature });
    case "toolResult":
      if (part.name === undefined)
        throw new TranslationError(
          "messages",
          `the result of the tool call ${JSON.stringify(part.id)} has no call before it`,
        );
      return { functionResponse: { name: part.name, response: resultOf(part.text) } };
  }
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

function imageType(url: string): string {
  const ending = /\.([a-z]+)(?:$|[?#])/i.exec(url)?.[1]?.toLowerCase() ?? "";
  return IMAGE_TYPES[ending] ?? "image/jpeg";
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

function generationConfig({ settings, maxTokens, stop }: ChatRequest): Members | undefined {
  const { response_format: format, reasoning_effort: effort } = settings;
  const budget = effort === undefined ? undefined : THINKING_BUDGETS[effort];
  if (effort !== undefined && budget === undefined)
    throw new TranslationError(
      "reasoning_effort",
      `${JSON.stringify(effort)} is not supported by the provider of this model`,
    );
  const config = compact({
    temperature: settings.temperature,
    topP: settings.top_p,
    topK: settings.top_k,
    maxOutputTokens: maxTokens,
    stopSequences: stop.length === 0 ? undefined : stop,
    candidateCount: settings.n,
    seed: settings.seed,
    presencePenalty: settings.presence_penalty,
    frequencyPenalty: settings.frequency_penalty,
    responseMimeType: format === undefined ? undefined : "application/json",
    responseJsonSchema: format?.kind === "schema" ? format.schema : undefined,
    thinkingConfig: budget === undefined ? undefined : { thinkingBudget: budget },
  });
  return Object.keys(config).length === 0 ? undefined : config;
}

function response(body: Members, context: TranslationContext): Members {
  const candidates = Array.isArray(body.candidates) ? body.candidates.filter(isMembers) : [];
  const choices = candidates.map((candidate) => choiceOf(candidate, context));
  // A prompt that was blocked has no candidates; the client sees an empty answer that was filtered.
  const blocked: ChatChoice[] = [{ text: "", reasoning: "", toolCalls: [], finish: "content_filter" }];
  return chatCompletion(
    context,
    textOrNothing(body.responseId),
    textOrNothing(body.modelVersion),
    choices.length === 0 ? blocked : choices,
    readUsage(body.usageMetadata),
  );
}

function choiceOf(candidate: Members, context: TranslationContext): ChatChoice {
  const { text, reasoning, toolCalls } = contentOf(candidate, context);
  return { text, reasoning, toolCalls, finish: finishOf(candidate.finishReason, toolCalls.length > 0) };
}

function contentOf(
  candidate: Members,
  context: TranslationContext,
): { text: string; reasoning: string; toolCalls: ChatToolCall[] } {
  let text = "";
  let reasoning = "";
  const toolCalls: ChatToolCall[] = [];
  const parts =
    isMembers(candidate.content) && Array.isArray(candidate.content.parts)
      ? candidate.content.parts.filter(isMembers)
      : [];
  for (const part of parts) {
    if (isMembers(part.functionCall)) {
      const { id, name, args } = part.functionCall;
      const signature = textOrNothing(part.thoughtSignature);
      toolCalls.push({
        id: textOrNothing(id) ?? `call_${context.newId()}`,
        name: String(name),
        arguments: JSON.stringify(args ?? {}),
        signature,
      });
    } else if (typeof part.text === "string") {
      if (part.thought === true) reasoning += part.text;
      else text += part.text;
    } else if (isMembers(part.inlineData) || isMembers(part.fileData))
      throw new UpstreamAnswerError(502, "the model answered with an image or a file, which a chat answer cannot hold");
  }
  return { text, reasoning, toolCalls };
}

function finishOf(reason: unknown, hasToolCalls: boolean): Finish {
  if (reason === "MAX_TOKENS") return "length";
  if (typeof reason === "string" && FILTERED.has(reason)) return "content_filter";
  return hasToolCalls ? "tool_calls" : "stop";
}

function stream(context: TranslationContext): StreamTranslation {
  const chunks = createChunkWriter(context);
  let usage: unknown;
  let finished = false;
  /** By candidate: how many tool calls it has made. */
  const toolCounts: number[] = [];
  return {
    event(_name, data) {
      if (isMembers(data.error)) throw new UpstreamAnswerError(500, errorMessage(data, ""));
      if (isMembers(data.usageMetadata)) usage = data.usageMetadata;
      const out: OutEvent[] = chunks.begin(textOrNothing(data.responseId), textOrNothing(data.modelVersion));
      for (const candidate of Array.isArray(data.candidates) ? data.candidates.filter(isMembers) : []) {
        const index = typeof candidate.index === "number" ? candidate.index : 0;
        const { text, reasoning, toolCalls } = contentOf(candidate, context);
        if (reasoning !== "") out.push(chunks.delta(index, { reasoning_content: reasoning }));
        if (text !== "") out.push(chunks.delta(index, { content: text }));
        for (const call of toolCalls) {
          const at = toolCounts[index] ?? 0;
          toolCounts[index] = at + 1;
          out.push(chunks.delta(index, { tool_calls: [{ index: at, ...toolCall(call) }] }));
        }
        if (typeof candidate.finishReason === "string") {
          finished = true;
          out.push(chunks.finish(index, finishOf(candidate.finishReason, (toolCounts[index] ?? 0) > 0)));
        }
      }
      if (isMembers(data.promptFeedback) && typeof data.promptFeedback.blockReason === "string") {
        finished = true;
        out.push(chunks.finish(0, "content_filter"));
      }
      return out;
    },
    end() {
      if (!finished) throw new UpstreamAnswerError(502, "the provider's stream ended early");
      return chunks.done(readUsage(usage));
    },
  };
}

function textOrNothing(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
