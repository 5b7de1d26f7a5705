/**
 * Implements the provider side of Gemini's generateContent.
 */
import { lookupTable } from "../../base/lookup-table.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { isMembers, type Members } from "../../json/json.ts";
import type { ParsedTexts } from "../../json/read-json.ts";
import { errorMessage } from "../request/llm-errors.ts";
import {
  type ContentPart,
  type Conversation,
  compact,
  ENDED_EARLY,
  keepSupportedParts,
  type Losses,
  NOT_SUPPORTED,
  nonEmptyString,
  type Part,
  readToolMembers,
  resultText,
  type Signature,
  type Source,
  type ToolChoice,
  TranslationError,
  thinkingBudget,
  UpstreamResponseError,
  unlessEmpty,
  writeSettings,
} from "./conversation.ts";
import {
  type Finish,
  type ResponseSink,
  readChoiceIndex,
  reportUsage,
  type StreamReader,
  type TranslationContext,
} from "./translation.ts";

const TOOL_RESULT = peerInput("client/llm-tool-result");

const MEDIA_TYPES = lookupTable<string>({
  png: "image/png",
  webp: "image/webp",
  gif: "image/gif",
  heic: "image/heic",
  heif: "image/heif",
  pdf: "application/pdf",
});

export function writeGeminiRequest(conversation: Conversation, context: TranslationContext): Members {
  const { losses } = context;
  return compact({
    systemInstruction:
      conversation.system.length === 0 ? undefined : { parts: conversation.system.map(({ text }) => ({ text })) },
    contents: keepSupportedParts(conversation.turns, isForGemini).map(({ role, parts }) => ({
      role: role === "assistant" ? "model" : "user",
      parts: writeParts(parts, context),
    })),
    tools:
      conversation.tools.length === 0
        ? undefined
        : [
            {
              functionDeclarations: conversation.tools.map(({ name, description, parameters }) =>
                compact({ name, description, parametersJsonSchema: parameters }),
              ),
            },
          ],
    toolConfig: conversation.tools.length === 0 ? undefined : toolConfig(conversation.toolChoice),
    generationConfig: generationConfig(conversation, losses),
  });
}

function isForGemini(part: Part): boolean {
  return part.kind !== "thought" || (part.signature.signer === "google" && !part.isRedacted);
}

/**
 * Gemini 3 models require a signature on the first tool call of a turn. Google documents this value for a history that
 * another model created.
 */
const UNSIGNED = "skip_thought_signature_validator";

function writeParts(parts: readonly Part[], context: TranslationContext): Members[] {
  const firstCall = parts.findIndex(({ kind }) => kind === "toolCall");
  return parts.flatMap((part, i) => {
    const [mapped = {}, ...more] = writePart(part, context);
    const wantsSignature = i === firstCall && /gemini-3/.test(context.model) && mapped.thoughtSignature === undefined;
    return [wantsSignature ? { ...mapped, thoughtSignature: UNSIGNED } : mapped, ...more];
  });
}

function writePart(part: Part, context: TranslationContext): Members[] {
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
      const response = part.isError ? { error: text } : wrapResult(text, context);
      // Images and files of a tool result are separate parts.
      const seen = part.parts.filter(({ kind }) => kind !== "text").map(writeContent);
      return [{ functionResponse: { name: part.name, response } }, ...seen];
    }
    case "thought":
      return [{ text: part.text, thought: true, thoughtSignature: part.signature.value }];
    default:
      return [writeContent(part)];
  }
}

function writeContent(part: ContentPart): Members {
  if (part.kind === "text") return { text: part.text };
  return writeData(part.source);
}

function writeData(source: Source): Members {
  if ("url" in source) return { fileData: { mimeType: guessMediaType(source.url), fileUri: source.url } };
  return { inlineData: { mimeType: source.mediaType, data: source.data } };
}

/** Gemini requires an object as the result. */
function wrapResult(text: string, parsed: ParsedTexts): Members {
  return readToolMembers(TOOL_RESULT, text, parsed) ?? { result: text };
}

function guessMediaType(url: string): string {
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

function generationConfig(conversation: Conversation, losses: Losses): Members | undefined {
  const { format, maxTokens, stop, settings } = conversation;
  if (conversation.parallelTools === false && conversation.tools.length > 0) losses.lose("parallel_tool_calls", false);
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
    stopSequences: unlessEmpty(stop),
    responseMimeType: format === undefined ? undefined : "application/json",
    responseJsonSchema: format?.kind === "schema" ? format.schema : undefined,
    thinkingConfig: thinkingConfig(conversation, losses),
  });
  return unlessEmpty(config);
}

/** Without `includeThoughts`, Gemini generates and bills reasoning but does not return it. */
function thinkingConfig({ thinking }: Conversation, losses: Losses): Members | undefined {
  if (thinking === undefined) return undefined;
  if (thinking.isAdaptive && thinking.effort === undefined) return { includeThoughts: true, thinkingBudget: -1 };
  const budget = thinkingBudget(thinking);
  if (budget === undefined) {
    losses.lose(thinking.param, thinking.effort, `${JSON.stringify(thinking.effort)} ${NOT_SUPPORTED}`);
    return undefined;
  }
  return budget === 0 ? { thinkingBudget: 0 } : { includeThoughts: true, thinkingBudget: budget };
}

const FILTERED = new Set([
  ...["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"],
]);

export function readGeminiResponse(body: Members, sink: ResponseSink): void {
  sink.begin(nonEmptyString(body.responseId), nonEmptyString(body.modelVersion));
  const candidates = Array.isArray(body.candidates) ? body.candidates.filter(isMembers) : [];
  for (const [at, candidate] of candidates.entries()) {
    const calls = readParts(candidate, at, 0, sink);
    sink.finish(at, readFinish(candidate.finishReason, calls > 0));
  }
  // A blocked prompt has no candidates, so the client gets an empty, filtered response.
  if (candidates.length === 0) sink.finish(0, "filter");
  reportUsage(body.usageMetadata, sink);
}

export function openGeminiReader(sink: ResponseSink): StreamReader {
  let usage: unknown;
  let finished = false;
  const calls: number[] = [];
  return {
    event(_name, data) {
      if (isMembers(data.error)) throw new UpstreamResponseError(500, errorMessage(data, ""));
      if (isMembers(data.usageMetadata)) usage = data.usageMetadata;
      sink.begin(nonEmptyString(data.responseId), nonEmptyString(data.modelVersion));
      for (const candidate of Array.isArray(data.candidates) ? data.candidates : []) {
        if (!isMembers(candidate)) continue;
        const at = readChoiceIndex(candidate.index);
        calls[at] = readParts(candidate, at, calls[at] ?? 0, sink);
        if (typeof candidate.finishReason === "string") {
          finished = true;
          sink.finish(at, readFinish(candidate.finishReason, (calls[at] ?? 0) > 0));
        }
      }
      if (isMembers(data.promptFeedback) && typeof data.promptFeedback.blockReason === "string") {
        finished = true;
        sink.finish(0, "filter");
      }
    },
    end() {
      if (!finished) throw new UpstreamResponseError(502, ENDED_EARLY);
      reportUsage(usage, sink);
    },
  };
}

function readParts(candidate: Members, choice: number, callsBefore: number, sink: ResponseSink): number {
  let calls = callsBefore;
  const { content } = candidate;
  const parts = isMembers(content) && Array.isArray(content.parts) ? content.parts : [];
  for (const part of parts) {
    if (!isMembers(part)) continue;
    const signature = googleSignature(part.thoughtSignature);
    if (isMembers(part.functionCall)) {
      const { id, name, args } = part.functionCall;
      sink.toolCall(choice, calls, nonEmptyString(id), String(name), signature);
      sink.toolInput(choice, calls, JSON.stringify(args ?? {}));
      sink.toolEnd(choice, calls);
      calls += 1;
    } else if (typeof part.text === "string") {
      if (part.thought === true) sink.thought(choice, part.text);
      else sink.text(choice, part.text);
    } else if (isMembers(part.inlineData) || isMembers(part.fileData))
      throw new UpstreamResponseError(502, "the model answered with an image or a file, which cannot be translated");
    else if (isMembers(part.executableCode) || isMembers(part.codeExecutionResult))
      throw new UpstreamResponseError(502, "the model ran code, which cannot be translated");
  }
  return calls;
}

function googleSignature(value: unknown): Signature | undefined {
  return typeof value === "string" && value !== "" ? { signer: "google", value } : undefined;
}

function readFinish(reason: unknown, hasCalls: boolean): Finish {
  if (reason === "MAX_TOKENS") return "length";
  if (typeof reason === "string" && FILTERED.has(reason)) return "filter";
  return hasCalls ? "toolCalls" : "stop";
}
