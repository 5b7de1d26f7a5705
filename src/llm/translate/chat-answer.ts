/**
 * An OpenAI chat answer from its meaning, whole or chunk by chunk; every translation to a chat client ends here, so
 * that all look alike.
 */

import type { Usage } from "../usage/usage.ts";
import type { Members } from "../wire/json.ts";
import { compact } from "./fields.ts";
import type { OutEvent, TranslationContext } from "./translation.ts";

export type Finish = "stop" | "length" | "tool_calls" | "content_filter";

export interface ChatToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
  readonly signature?: string | undefined;
}

export interface ChatChoice {
  readonly text: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ChatToolCall[];
  readonly finish: Finish;
}

export function chatCompletion(
  context: TranslationContext,
  id: string | undefined,
  model: string | undefined,
  choices: readonly ChatChoice[],
  usage: Usage | undefined,
): Members {
  return compact({
    id: id ?? `chatcmpl-${context.newId()}`,
    object: "chat.completion",
    created: context.createdSeconds,
    model: model ?? context.model,
    choices: choices.map((choice, index) => ({
      index,
      message: compact({
        role: "assistant",
        // Without any text there is null, not an empty text (as OpenAI answers a tool call).
        content: choice.text === "" && choice.toolCalls.length > 0 ? null : choice.text,
        reasoning_content: choice.reasoning === "" ? undefined : choice.reasoning,
        tool_calls: choice.toolCalls.length === 0 ? undefined : choice.toolCalls.map(toolCall),
      }),
      logprobs: null,
      finish_reason: choice.finish,
    })),
    usage: usage && chatUsage(usage),
  });
}

/** Cached tokens are part of the prompt here, and are also shown by themselves. */
export function chatUsage(usage: Usage): Members {
  return compact({
    prompt_tokens: usage.inputTokens,
    completion_tokens: usage.outputTokens,
    total_tokens: usage.totalTokens,
    prompt_tokens_details:
      usage.cachedInputTokens === undefined && usage.cacheCreationInputTokens === undefined
        ? undefined
        : compact({ cached_tokens: usage.cachedInputTokens ?? 0, cache_write_tokens: usage.cacheCreationInputTokens }),
    completion_tokens_details:
      usage.reasoningTokens === undefined ? undefined : { reasoning_tokens: usage.reasoningTokens },
  });
}

export interface ChunkWriter {
  /** From the provider's first event; what is not known yet is made up. */
  begin(id: string | undefined, model: string | undefined): OutEvent[];
  delta(index: number, delta: Members): OutEvent;
  finish(index: number, finish: Finish): OutEvent;
  /** The usage, if the client asked for it, and the end mark. */
  done(usage: Usage | undefined): OutEvent[];
}

export function createChunkWriter(context: TranslationContext): ChunkWriter {
  let head: Members = {};
  let begun = false;
  const chunk = (index: number, delta: Members, finish: Finish | null): OutEvent => ({
    data: { ...head, choices: [{ index, delta, logprobs: null, finish_reason: finish }] },
  });
  const begin = (id: string | undefined, model: string | undefined): OutEvent[] => {
    if (begun) return [];
    begun = true;
    head = {
      id: id ?? `chatcmpl-${context.newId()}`,
      object: "chat.completion.chunk",
      created: context.createdSeconds,
      model: model ?? context.model,
    };
    return [chunk(0, { role: "assistant", content: "" }, null)];
  };
  return {
    begin,
    delta: (index, delta) => chunk(index, delta, null),
    finish: (index, finish) => chunk(index, {}, finish),
    done: (usage) => [
      ...(context.includeUsage && usage ? [{ data: { ...head, choices: [], usage: chatUsage(usage) } }] : []),
      { data: "[DONE]" as const },
    ],
  };
}

export function toolCall(call: ChatToolCall): Members {
  return {
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
    ...(call.signature === undefined ? {} : { extra_content: { google: { thought_signature: call.signature } } }),
  };
}
