/**
 * An OpenAI Responses answer from the common form: a list of items, thoughts, messages and calls of tools.
 */

import { type Members, parseMembers } from "../../../json/json.ts";
import type { AnswerPart, Finish, WholeAnswer } from "../../canonical/answer.ts";
import { compact } from "../../canonical/fields.ts";
import { type Signature, writeSignature } from "../../canonical/signature.ts";
import type { TranslationContext } from "../../canonical/translation.ts";
import type { Usage } from "../../usage/usage.ts";

export function writeResponsesAnswer(answer: WholeAnswer, context: TranslationContext): Members {
  const choice = answer.choices[0] ?? { parts: [], finish: "stop" as const };
  return responseObject(context, {
    id: `resp_${answer.id ?? context.newId()}`,
    model: answer.model,
    output: choice.parts.map((part) => itemOf(part, context)),
    finish: choice.finish,
    usage: answer.counted,
  });
}

export interface ResponseState {
  readonly id: string;
  readonly model: string | undefined;
  readonly output: readonly Members[];
  /** Undefined while it is being written. */
  readonly finish: Finish | undefined;
  readonly usage: Usage | undefined;
}

const INCOMPLETE: Readonly<Partial<Record<Finish, string>>> = { length: "max_output_tokens", filter: "content_filter" };

export function responseObject(context: TranslationContext, state: ResponseState): Members {
  const reason = state.finish && INCOMPLETE[state.finish];
  return {
    id: state.id,
    object: "response",
    created_at: context.createdSeconds,
    status: state.finish === undefined ? "in_progress" : reason === undefined ? "completed" : "incomplete",
    background: false,
    error: null,
    incomplete_details: reason === undefined ? null : { reason },
    instructions: null,
    max_output_tokens: null,
    metadata: {},
    model: state.model ?? context.model,
    output: state.output,
    parallel_tool_calls: true,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    store: false,
    temperature: null,
    text: { format: { type: "text" } },
    tool_choice: "auto",
    tools: [],
    top_p: null,
    truncation: "disabled",
    usage: state.usage === undefined ? null : responsesUsage(state.usage),
  };
}

function responsesUsage(usage: Usage): Members {
  return {
    input_tokens: usage.inputTokens,
    input_tokens_details: compact({
      cached_tokens: usage.cachedInputTokens ?? 0,
      cache_write_tokens: usage.cacheCreationInputTokens,
    }),
    output_tokens: usage.outputTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens ?? 0 },
    total_tokens: usage.totalTokens,
  };
}

function itemOf(part: AnswerPart, context: TranslationContext): Members {
  switch (part.kind) {
    case "text":
      return messageItem(`msg_${context.newId()}`, part.text);
    case "thought":
      return reasoningItem(`rs_${context.newId()}`, part.text, part.signature);
    case "toolCall":
      return callItem(context, `fc_${context.newId()}`, part.id ?? `call_${context.newId()}`, part.name, part.input);
  }
}

export function messageItem(id: string, text: string): Members {
  return { id, type: "message", status: "completed", role: "assistant", content: [outputText(text)] };
}

export function outputText(text: string): Members {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

export function reasoningItem(id: string, text: string, signature: Signature | undefined): Members {
  return compact({
    id,
    type: "reasoning",
    summary: text === "" ? [] : [{ type: "summary_text", text }],
    encrypted_content: signature && writeSignature(signature, undefined),
  });
}

/** Tools that take a text are called with it, not with the object that other providers were told of. */
export function callItem(
  context: TranslationContext,
  id: string,
  callId: string,
  name: string,
  input: string,
): Members {
  const call = { id, call_id: callId, name, status: "completed" };
  if (context.textTools.has(name)) return { ...call, type: "custom_tool_call", input: textInputOf(input) };
  return { ...call, type: "function_call", arguments: input === "" ? "{}" : input };
}

export function textInputOf(json: string): string {
  const input = parseMembers(json)?.input;
  return typeof input === "string" ? input : json;
}
