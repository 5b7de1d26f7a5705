/**
 * Implements the provider side of Amazon Bedrock: the Converse API, which rejects empty text, descriptions, and
 * results, and a history whose tools are not defined, and `invoke`, which accepts nearly the body of the Messages
 * API and preserves what Converse rejects, such as Anthropic's own tools.
 */
import { lookupTable } from "../../base/lookup-table.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { readMembers } from "../../json/read-json.ts";
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
  type ToolResultPart,
  TranslationError,
  type Turn,
  thinkingBudget,
  thinkingEffort,
  UpstreamResponseError,
  unlessEmpty,
  usesTools,
  writeSettings,
} from "./conversation.ts";
import { anthropicSignature, readFinish } from "./messages-provider.ts";
import {
  type ResponseSink,
  reportUsage,
  type StreamReader,
  type StreamTranslation,
  type Translation,
  type TranslationContext,
} from "./translation.ts";

const IMAGE_FORMATS = lookupTable<string>({
  "image/png": "png",
  "image/jpeg": "jpeg",
  "image/jpg": "jpeg",
  "image/gif": "gif",
  "image/webp": "webp",
});
const DOCUMENT_FORMATS = lookupTable<string>({
  "application/pdf": "pdf",
  "text/csv": "csv",
  "text/html": "html",
  "text/plain": "txt",
  "text/markdown": "md",
  "application/msword": "doc",
  "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
  "application/vnd.ms-excel": "xls",
  "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
});
/** Excludes models without prompt caching, because Bedrock rejects cache points for them. */
const CACHES = /anthropic\.claude-(?!3-(?:opus|sonnet|haiku)-|v2|instant)|amazon\.nova/;
const CACHE_POINT = { cachePoint: { type: "default" } };
const NO_OUTPUT = "(no output)";

export function writeConverseRequest(conversation: Conversation, context: TranslationContext): Members {
  const { losses, model } = context;
  const marked = markerFor(model);
  const isClaude = /anthropic\.claude/.test(model);
  const turns = keepSupportedParts(
    conversation.turns,
    (part) => part.kind !== "thought" || (isClaude && part.signature.signer === "anthropic"),
  );
  const { topK, ...settings } = conversation.settings;
  const inference = compact({
    maxTokens: conversation.maxTokens,
    stopSequences: unlessEmpty(conversation.stop),
    ...writeSettings(settings, { temperature: "temperature", topP: "topP" }, losses),
  });
  const betas = isClaude ? bedrockBetas(context.betas) : [];
  const additional = compact({
    top_k: topK?.value,
    ...thinkingFields(conversation, model, losses),
    anthropic_beta: unlessEmpty(betas),
  });
  return compact({
    system:
      conversation.system.length === 0
        ? undefined
        : conversation.system
            .filter(({ text }) => text !== "")
            .flatMap(({ text, cacheControl }) => marked({ text }, cacheControl)),
    messages: turns.map(({ role, parts }) => ({ role, content: parts.flatMap((part) => writeBlocks(part, marked)) })),
    inferenceConfig: unlessEmpty(inference),
    toolConfig: toolConfig(conversation, turns, marked, losses),
    outputConfig: outputConfig(conversation, losses),
    additionalModelRequestFields: unlessEmpty(additional),
  });
}

type Marked = (block: Members, cacheControl: unknown) => Members[];

/** Converse marks cached content with a separate block after it. */
function markerFor(model: string): Marked {
  const caches = CACHES.test(model);
  return (block, mark) => (!caches || mark === undefined || mark === null ? [block] : [block, CACHE_POINT]);
}

function writeBlocks(part: Part, marked: Marked): Members[] {
  switch (part.kind) {
    case "toolCall":
      return [{ toolUse: { toolUseId: part.id, name: part.name, input: part.input } }];
    case "toolResult":
      return marked({ toolResult: toolResult(part) }, part.cacheControl);
    case "thought":
      return [
        part.isRedacted
          ? { reasoningContent: { redactedContent: part.signature.value } }
          : { reasoningContent: { reasoningText: { text: part.text, signature: part.signature.value } } },
      ];
    default:
      return marked(writeContent(part), part.cacheControl);
  }
}

function toolResult({ id, parts, isError }: ToolResultPart): Members {
  const content = parts.filter((part) => part.kind !== "text" || part.text !== "").map(writeContent);
  return compact({
    toolUseId: id,
    content: content.length === 0 ? [{ text: NO_OUTPUT }] : content,
    status: isError ? "error" : undefined,
  });
}

function writeContent(part: ContentPart): Members {
  if (part.kind === "text") return { text: part.text };
  if ("url" in part.source) {
    const what = part.kind === "image" ? "images" : "files";
    throw new TranslationError("messages", `the provider of this model takes ${what} only as data URLs`);
  }
  const { mediaType, data } = part.source;
  const format = part.kind === "image" ? IMAGE_FORMATS[mediaType] : DOCUMENT_FORMATS[mediaType];
  if (format === undefined)
    throw new TranslationError(
      "messages",
      `${part.kind === "image" ? "images" : "files"} of type ${mediaType} are not supported by the provider of this model`,
    );
  return part.kind === "image"
    ? { image: { format, source: { bytes: data } } }
    : { document: { format, name: documentName(part.name), source: { bytes: data } } };
}

/** Converse allows only letters, digits, single spaces, hyphens, parentheses, and brackets in document names. */
function documentName(name: string | undefined): string {
  const cleaned = (name ?? "")
    .replace(/\.[^.]*$/, "")
    .replace(/[^A-Za-z0-9 ()[\]-]+/g, "-")
    .replace(/ {2,}/g, " ")
    .trim();
  return cleaned === "" ? "document" : cleaned;
}

function toolConfig(
  conversation: Conversation,
  turns: readonly Turn[],
  marked: Marked,
  losses: Losses,
): Members | undefined {
  const { toolChoice: choice } = conversation;
  const hasUsedTools = usesTools(turns);
  if (conversation.parallelTools === false && conversation.tools.length > 0) losses.lose("parallel_tool_calls", false);
  if (conversation.tools.length === 0 && !hasUsedTools) return undefined;
  if (choice === "none") {
    // Converse cannot forbid tool calls, but without definitions the model cannot call tools.
    if (!hasUsedTools) return undefined;
    losses.lose(
      "tool_choice",
      "none",
      "none is not supported by the provider of this model after tools have been used",
    );
  }
  const tools = conversation.tools.flatMap(({ name, description, parameters, strict, cacheControl }) =>
    marked(
      {
        toolSpec: compact({
          name,
          description: description === "" ? undefined : description,
          inputSchema: { json: parameters },
          strict: strict === true ? true : undefined,
        }),
      },
      cacheControl,
    ),
  );
  return compact({
    tools: tools.length === 0 ? usedTools(turns) : tools,
    toolChoice:
      choice === undefined || choice === "none" || tools.length === 0
        ? undefined
        : choice === "auto"
          ? { auto: {} }
          : choice === "required"
            ? { any: {} }
            : { tool: { name: choice.name } },
  });
}

/** Creates minimal definitions of the tools that the history calls. */
function usedTools(turns: readonly Turn[]): Members[] {
  const names = new Set(
    turns.flatMap(({ parts }) => parts.flatMap((part) => (part.kind === "toolCall" ? [part.name] : []))),
  );
  return [...names].map((name) => ({ toolSpec: { name, inputSchema: { json: { type: "object" } } } }));
}

function outputConfig({ format }: Conversation, losses: Losses): Members | undefined {
  if (format === undefined) return undefined;
  if (format.kind === "json") {
    losses.lose(format.param, { type: "json_object" }, "json_object is not supported by the provider of this model");
    return undefined;
  }
  const jsonSchema = { schema: JSON.stringify(format.schema), name: format.name };
  return { textFormat: { type: "json_schema", structure: { jsonSchema } } };
}

/** Each model family has its own parameter for reasoning. */
function thinkingFields({ thinking }: Conversation, model: string, losses: Losses): Members {
  if (thinking === undefined || thinking.effort === "none") return {};
  const budget = thinkingBudget(thinking);
  if (thinking.budgetTokens !== undefined || (/anthropic\.claude/.test(model) && budget !== undefined))
    return { thinking: { type: "enabled", budget_tokens: Math.max(1024, budget ?? 0) } };
  const effort = thinkingEffort(thinking);
  if (effort !== undefined && /openai\.gpt-oss/.test(model)) return { reasoning_effort: effort };
  if (effort !== undefined && /amazon\.nova-2/.test(model))
    return {
      reasoningConfig: { type: "enabled", maxReasoningEffort: /^(?:low|medium)$/.test(effort) ? effort : "high" },
    };
  losses.lose(
    thinking.param,
    effort,
    effort === undefined ? NOT_SUPPORTED : `${JSON.stringify(effort)} ${NOT_SUPPORTED}`,
  );
  return {};
}

export function readConverseResponse(body: Members, sink: ResponseSink): void {
  const message = isMembers(body.output) && isMembers(body.output.message) ? body.output.message : undefined;
  if (message === undefined) throw new UpstreamResponseError(502, "the provider's response has no message");
  sink.begin(undefined, undefined);
  let call = 0;
  for (const block of Array.isArray(message.content) ? message.content.filter(isMembers) : []) {
    if (typeof block.text === "string") sink.text(0, block.text);
    if (isMembers(block.reasoningContent)) {
      const { reasoningText, redactedContent } = block.reasoningContent;
      if (isMembers(reasoningText)) {
        sink.thought(0, String(reasoningText.text));
        const signature = anthropicSignature(reasoningText.signature);
        if (signature) sink.signed(0, signature);
      }
      const redacted = anthropicSignature(redactedContent);
      if (redacted) sink.redacted(0, redacted);
    }
    if (isMembers(block.toolUse)) {
      sink.toolCall(0, call, nonEmptyString(block.toolUse.toolUseId), String(block.toolUse.name));
      sink.toolInput(0, call, JSON.stringify(block.toolUse.input ?? {}));
      sink.toolEnd(0, call);
      call += 1;
    }
  }
  sink.finish(0, readFinish(body.stopReason));
  reportUsage(body.usage, sink);
}

export function openConverseReader(sink: ResponseSink): StreamReader {
  let calls = 0;
  let isCall = false;
  let finished = false;
  let usage: unknown;
  return {
    event(type, data) {
      switch (type) {
        case "messageStart":
          sink.begin(undefined, undefined);
          break;
        case "contentBlockStart": {
          const tool = isMembers(data.start) && isMembers(data.start.toolUse) ? data.start.toolUse : undefined;
          isCall = tool !== undefined;
          if (tool) sink.toolCall(0, calls++, nonEmptyString(tool.toolUseId), String(tool.name));
          break;
        }
        case "contentBlockDelta":
          if (isMembers(data.delta)) readDelta(data.delta);
          break;
        case "contentBlockStop":
          if (isCall) sink.toolEnd(0, calls - 1);
          isCall = false;
          break;
        case "messageStop":
          finished = true;
          sink.finish(0, readFinish(data.stopReason));
          break;
        case "metadata":
          usage = data.usage;
          break;
        case "exception":
          throw new UpstreamResponseError(500, errorMessage(data, ""));
      }
    },
    end() {
      if (!finished) throw new UpstreamResponseError(502, ENDED_EARLY);
      reportUsage(usage, sink);
    },
  };

  function readDelta(delta: Members): void {
    if (typeof delta.text === "string") sink.text(0, delta.text);
    else if (isMembers(delta.toolUse)) sink.toolInput(0, calls - 1, String(delta.toolUse.input ?? ""));
    else if (isMembers(delta.reasoningContent)) {
      const { text, signature, redactedContent } = delta.reasoningContent;
      if (typeof text === "string") sink.thought(0, text);
      const signed = anthropicSignature(signature);
      if (signed) sink.signed(0, signed);
      const redacted = anthropicSignature(redactedContent);
      if (redacted) sink.redacted(0, redacted);
    }
  }
}

const EVENT = peerInput("llm-provider/stream-event");

const VERSION = "bedrock-2023-05-31";

export const messagesToInvoke: Translation = {
  request(body, { betas, losses }) {
    const { model: _inPath, stream: _inPathToo, anthropic_beta: given, ...rest } = body;
    const wanted = [...betas, ...(Array.isArray(given) ? given.map(String) : [])];
    const known = [...new Set(bedrockBetas(wanted))];
    const sent: Record<string, unknown> = { anthropic_version: VERSION, ...rest };
    for (const member of membersWithoutBeta(known)) {
      if (sent[member] !== undefined && sent[member] !== null) losses.lose(member, sent[member]);
      delete sent[member];
    }
    return losses.passInto(known.length === 0 ? sent : { ...sent, anthropic_beta: known });
  },
  response: (body) => body,
  stream: unwrapped,
};

/** Bedrock adds its own counts to the last event, which clients of the Messages API do not expect. */
const METRICS = "amazon-bedrock-invocationMetrics";

function unwrapped(): StreamTranslation {
  let finished = false;
  return {
    event(type, data) {
      if (type === "exception") throw new UpstreamResponseError(500, errorMessage(data, ""));
      const event = typeof data.bytes === "string" ? readMembers(EVENT, decode(data.bytes)) : undefined;
      if (event === undefined || typeof event.type !== "string")
        throw new UpstreamResponseError(502, "the provider's stream contains an invalid event");
      if (event.type === "message_stop") finished = true;
      return [{ event: event.type, data: withoutMetrics(event) }];
    },
    end() {
      if (!finished) throw new UpstreamResponseError(502, ENDED_EARLY);
      return [];
    },
    heldChars: () => 0,
  };
}

function decode(base64: string): string {
  return Buffer.from(base64, "base64").toString("utf8");
}

function withoutMetrics(event: Members): Members {
  if (!(METRICS in event)) return event;
  const { [METRICS]: _counts, ...rest } = event;
  return rest;
}

const BEDROCK = new Set([
  ...["computer-use-2024-10-22", "computer-use-2025-01-24", "computer-use-2025-11-24", "output-128k-2025-02-19"],
  ...["token-efficient-tools-2025-02-19", "interleaved-thinking-2025-05-14", "dev-full-thinking-2025-05-14"],
  ...["fine-grained-tool-streaming-2025-05-14", "context-1m-2025-08-07", "context-management-2025-06-27"],
  ...["effort-2025-11-24", "tool-search-tool-2025-10-19", "tool-examples-2025-10-29"],
]);

const MEMBERS: readonly (readonly [member: string, beta: string])[] = [
  ["context_management", "context-management-2025-06-27"],
];

export function parseBetas(header: string | undefined): readonly string[] {
  return header === undefined
    ? []
    : header
        .split(",")
        .map((name) => name.trim())
        .filter((name) => name !== "");
}

function bedrockBetas(betas: readonly string[]): readonly string[] {
  return betas.filter((name) => BEDROCK.has(name));
}

function membersWithoutBeta(betas: readonly string[]): readonly string[] {
  return MEMBERS.filter(([, beta]) => !betas.includes(beta)).map(([member]) => member);
}
