/**
 * Implements the provider side of Anthropic's Messages API, including the output limits and thinking modes of Claude
 * models.
 */
import { isMembers, type Members } from "../../json/json.ts";
import { errorMessage } from "../request/llm-errors.ts";
import { mergeUsage } from "../usage/usage.ts";
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
  type Signature,
  type Thinking,
  type ToolResultPart,
  TranslationError,
  type Turn,
  thinkingBudget,
  UpstreamResponseError,
  unlessEmpty,
  writeSettings,
} from "./conversation.ts";
import {
  type Finish,
  type ResponseSink,
  reportUsage,
  type StreamReader,
  type TranslationContext,
} from "./translation.ts";

export function writeMessagesRequest(conversation: Conversation, context: TranslationContext): Members {
  const { losses, model } = context;
  const turns = keepSupportedParts(conversation.turns, isForClaude);
  const { thinking, effort, minTokens } = claudeThinking(conversation.thinking, model, losses, lacksThoughts(turns));
  const format = conversation.format?.kind === "schema" ? conversation.format : undefined;
  if (conversation.format?.kind === "json")
    losses.lose(
      conversation.format.param,
      { type: "json_object" },
      "json_object is not supported by the provider of this model; use json_schema",
    );
  const output = compact({ effort, format: format && { type: "json_schema", schema: format.schema } });
  return compact({
    model,
    max_tokens: Math.max(conversation.maxTokens ?? claudeMaxTokens(model), minTokens),
    system: unlessEmpty(
      conversation.system.map((part) => compact({ type: "text", text: part.text, cache_control: part.cacheControl })),
    ),
    messages: turns.map(({ role, parts }) => ({ role, content: parts.map(writeBlock) })),
    tools: unlessEmpty(
      conversation.tools.map(({ name, description, parameters, strict, cacheControl }) =>
        compact({
          name,
          description,
          input_schema: parameters.type === undefined ? { type: "object", ...parameters } : parameters,
          strict: strict === true ? true : undefined,
          cache_control: cacheControl,
        }),
      ),
    ),
    tool_choice: toolChoice(conversation),
    thinking,
    output_config: unlessEmpty(output),
    stop_sequences: unlessEmpty(conversation.stop),
    metadata: conversation.user === undefined ? undefined : { user_id: conversation.user },
    ...writeSettings(conversation.settings, { temperature: "temperature", topP: "top_p", topK: "top_k" }, losses),
    stream: context.stream ? true : undefined,
  });
}

function isForClaude(part: Part): boolean {
  return part.kind !== "thought" || part.signature.signer === "anthropic";
}

/**
 * If thinking is enabled, Anthropic requires signed reasoning before the last tool calls. A history from another
 * provider may lack it.
 */
function lacksThoughts(turns: readonly Turn[]): boolean {
  const last = turns.findLast(({ role }) => role === "assistant");
  return last?.parts.some(({ kind }) => kind === "toolCall") === true && last.parts[0]?.kind !== "thought";
}

function writeBlock(part: Part): Members {
  switch (part.kind) {
    case "toolCall":
      return { type: "tool_use", id: part.id, name: part.name, input: part.input };
    case "toolResult":
      return compact({
        type: "tool_result",
        tool_use_id: part.id,
        content: resultContent(part),
        is_error: part.isError ? true : undefined,
        cache_control: part.cacheControl,
      });
    case "thought":
      return part.isRedacted
        ? { type: "redacted_thinking", data: part.signature.value }
        : { type: "thinking", thinking: part.text, signature: part.signature.value };
    default:
      return writeContent(part);
  }
}

function resultContent({ parts }: ToolResultPart): unknown {
  if (parts.every(({ kind }) => kind === "text"))
    return parts.map((part) => (part.kind === "text" ? part.text : "")).join("\n");
  return parts
    .filter((part) => part.kind !== "text" || part.text !== "")
    .map((part) => writeContent({ ...part, cacheControl: undefined }));
}

function writeContent(part: ContentPart): Members {
  switch (part.kind) {
    case "text":
      return compact({ type: "text", text: part.text, cache_control: part.cacheControl });
    case "image": {
      const source =
        "url" in part.source
          ? { type: "url", url: part.source.url }
          : { type: "base64", media_type: part.source.mediaType, data: part.source.data };
      return compact({ type: "image", source, cache_control: part.cacheControl });
    }
    case "file":
      return compact({
        type: "document",
        source: fileSource(part.source),
        title: part.name,
        cache_control: part.cacheControl,
      });
  }
}

function fileSource(source: Extract<ContentPart, { kind: "file" }>["source"]): Members {
  if ("url" in source) return { type: "url", url: source.url };
  if (source.mediaType === "text/plain")
    return { type: "text", media_type: "text/plain", data: Buffer.from(source.data, "base64").toString("utf8") };
  if (source.mediaType !== "application/pdf")
    throw new TranslationError(
      "messages",
      `files of type ${source.mediaType} are not supported by the provider of this model`,
    );
  return { type: "base64", media_type: "application/pdf", data: source.data };
}

function toolChoice({ toolChoice: choice, parallelTools, tools }: Conversation): Members | undefined {
  if (tools.length === 0) return undefined;
  const oneAtATime = parallelTools === false ? { disable_parallel_tool_use: true } : {};
  if (choice === undefined) return parallelTools === false ? { type: "auto", ...oneAtATime } : undefined;
  if (choice === "none") return { type: "none" };
  if (choice === "auto") return { type: "auto", ...oneAtATime };
  if (choice === "required") return { type: "any", ...oneAtATime };
  return { type: "tool", name: choice.name, ...oneAtATime };
}

/** Anthropic requires `max_tokens`, so these limits apply if the client sets none. */
const LIMITS: readonly (readonly [RegExp, number])[] = [
  [/claude-3-(?:opus|sonnet|haiku)|claude-(?:2|instant)/, 4096],
  [/claude-3-5/, 8192],
  [/claude-opus-4(?:-0|-1|-2|@|$)/, 32_000],
  [/claude-(?:3-7|sonnet-4|haiku-4|opus-4)/, 64_000],
];
const DEFAULT_LIMIT = 32_000;

function claudeMaxTokens(model: string): number {
  return LIMITS.find(([pattern]) => pattern.test(model))?.[1] ?? DEFAULT_LIMIT;
}

/** These models accept a thinking budget instead of an effort level. */
const BY_BUDGET = /claude-3-7|claude-(?:opus|sonnet)-4(?:-0|-1|-2\d{3}|@|$)|claude-(?:sonnet|haiku)-4-5/;
const NEVER = /claude-(?:3-5|3-opus|3-sonnet|3-haiku|2|instant)/;
const EFFORTS: Readonly<Record<string, string>> = {
  minimal: "low",
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "xhigh",
  max: "max",
};
const MIN_BUDGET = 1024;
const OUTPUT_TOKENS = 1024;

interface ClaudeThinking {
  readonly thinking: Members | undefined;
  readonly effort: string | undefined;
  readonly minTokens: number;
}

const NOTHING: ClaudeThinking = { thinking: undefined, effort: undefined, minTokens: 0 };

/** `isUnsigned` is true if the history lacks the signed reasoning that Anthropic requires. */
function claudeThinking(
  requested: Thinking | undefined,
  model: string,
  losses: Losses,
  isUnsigned: boolean,
): ClaudeThinking {
  if (requested === undefined || requested.effort === "none" || requested.budgetTokens === 0) return NOTHING;
  const { effort, budgetTokens, isAdaptive, param } = requested;
  const word = effort === undefined ? undefined : EFFORTS[effort];
  if (effort !== undefined && word === undefined) {
    losses.lose(param, effort, `${JSON.stringify(effort)} ${NOT_SUPPORTED}`);
    return NOTHING;
  }
  if (NEVER.test(model)) {
    losses.lose(param, effort ?? budgetTokens);
    return NOTHING;
  }
  const isByBudget = BY_BUDGET.test(model);
  const byEffort = isByBudget ? undefined : word;
  if (budgetTokens === undefined && !isByBudget)
    return { thinking: isAdaptive ? { type: "adaptive" } : undefined, effort: byEffort, minTokens: 0 };
  const budget = Math.max(MIN_BUDGET, thinkingBudget(requested) ?? MIN_BUDGET);
  if (isUnsigned) return { thinking: undefined, effort: byEffort, minTokens: 0 };
  return {
    thinking: compact({ type: "enabled", budget_tokens: budget }),
    effort: byEffort,
    minTokens: budget + OUTPUT_TOKENS,
  };
}

export function readMessagesResponse(body: Members, sink: ResponseSink): void {
  if (!Array.isArray(body.content)) throw new UpstreamResponseError(502, "the provider's response has no content");
  sink.begin(nonEmptyString(body.id), nonEmptyString(body.model));
  let call = 0;
  for (const block of body.content.filter(isMembers)) {
    if (block.type === "text") sink.text(0, String(block.text));
    else if (block.type === "thinking") {
      sink.thought(0, String(block.thinking));
      const signature = anthropicSignature(block.signature);
      if (signature) sink.signed(0, signature);
    } else if (block.type === "redacted_thinking") {
      const signature = anthropicSignature(block.data);
      if (signature) sink.redacted(0, signature);
    } else if (block.type === "tool_use") {
      sink.toolCall(0, call, nonEmptyString(block.id), String(block.name));
      sink.toolInput(0, call, JSON.stringify(block.input ?? {}));
      sink.toolEnd(0, call);
      call += 1;
    }
  }
  sink.finish(0, readFinish(body.stop_reason));
  reportUsage(body.usage, sink);
}

export function openMessagesReader(sink: ResponseSink): StreamReader {
  let usage: Members | undefined;
  let calls = 0;
  let isCall = false;
  let finish: Finish | undefined;
  return {
    event(_name, data) {
      switch (data.type) {
        case "message_start": {
          const message = isMembers(data.message) ? data.message : {};
          if (isMembers(message.usage)) usage = mergeUsage(usage, message.usage);
          sink.begin(nonEmptyString(message.id), nonEmptyString(message.model));
          break;
        }
        case "content_block_start": {
          const block = isMembers(data.content_block) ? data.content_block : {};
          isCall = block.type === "tool_use";
          if (isCall) sink.toolCall(0, calls++, nonEmptyString(block.id), String(block.name));
          else if (block.type === "redacted_thinking") {
            const signature = anthropicSignature(block.data);
            if (signature) sink.redacted(0, signature);
          }
          break;
        }
        case "content_block_delta":
          if (isMembers(data.delta)) readDelta(data.delta);
          break;
        case "content_block_stop":
          if (isCall) sink.toolEnd(0, calls - 1);
          isCall = false;
          break;
        case "message_delta":
          if (isMembers(data.usage)) usage = mergeUsage(usage, data.usage);
          if (isMembers(data.delta) && typeof data.delta.stop_reason === "string") {
            finish = readFinish(data.delta.stop_reason);
            sink.finish(0, finish);
          }
          break;
        case "error":
          throw new UpstreamResponseError(500, errorMessage(data, ""));
      }
    },
    // A stream without a stop reason was truncated, and the client must not treat it as complete.
    end() {
      if (finish === undefined) throw new UpstreamResponseError(502, ENDED_EARLY);
      reportUsage(usage, sink);
    },
  };

  function readDelta(delta: Members): void {
    switch (delta.type) {
      case "text_delta":
        sink.text(0, String(delta.text));
        break;
      case "thinking_delta":
        sink.thought(0, String(delta.thinking));
        break;
      case "signature_delta": {
        const signature = anthropicSignature(delta.signature);
        if (signature) sink.signed(0, signature);
        break;
      }
      case "input_json_delta":
        sink.toolInput(0, calls - 1, String(delta.partial_json));
        break;
    }
  }
}

export function anthropicSignature(value: unknown): Signature | undefined {
  return typeof value === "string" && value !== "" ? { signer: "anthropic", value } : undefined;
}

export function readFinish(stopReason: unknown): Finish {
  switch (stopReason) {
    case "max_tokens":
    case "model_context_window_exceeded":
      return "length";
    case "tool_use":
      return "toolCalls";
    case "refusal":
    case "guardrail_intervened":
    case "content_filtered":
      return "filter";
    default:
      return "stop";
  }
}
