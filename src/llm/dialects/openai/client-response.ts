/**
 * An OpenAI chat answer from the common form, whole or chunk by chunk.
 */

import type { Members } from "../../../json/json.ts";
import { type Choice, type Finish, textOfChoice, thoughtsOfChoice, type WholeAnswer } from "../../canonical/answer.ts";
import { compact } from "../../canonical/fields.ts";
import { type Signature, writeSignature } from "../../canonical/signature.ts";
import type { OutEvent, StreamWriter, TranslationContext } from "../../canonical/translation.ts";
import type { Usage } from "../../usage/usage.ts";

const FINISH: Readonly<Record<Finish, string>> = {
  stop: "stop",
  length: "length",
  toolCalls: "tool_calls",
  filter: "content_filter",
};

export function writeChatAnswer(answer: WholeAnswer, context: TranslationContext): Members {
  return compact({
    id: answer.id ?? `chatcmpl-${context.newId()}`,
    object: "chat.completion",
    created: context.createdSeconds,
    model: answer.model ?? context.model,
    choices: answer.choices.map((choice, index) => ({
      index,
      message: message(choice, context),
      logprobs: null,
      finish_reason: FINISH[choice.finish],
    })),
    usage: answer.counted && chatUsage(answer.counted),
  });
}

function message(choice: Choice, context: TranslationContext): Members {
  const text = textOfChoice(choice);
  const reasoning = thoughtsOfChoice(choice);
  const calls = choice.parts.flatMap((part) =>
    part.kind === "toolCall"
      ? [
          toolCall(
            part.id ?? `call_${context.newId()}`,
            part.name,
            part.input === "" ? "{}" : part.input,
            part.signature,
          ),
        ]
      : [],
  );
  return compact({
    role: "assistant",
    // Without any text there is null, not an empty text (as OpenAI answers a tool call).
    content: text === "" && calls.length > 0 ? null : text,
    reasoning_content: reasoning === "" ? undefined : reasoning,
    tool_calls: calls.length === 0 ? undefined : calls,
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

/** Gemini's signature of a thought travels with the call, as in Google's own OpenAI-compatible API. */
function toolCall(id: string, name: string, input: string, signature: Signature | undefined): Members {
  return {
    id,
    type: "function",
    function: { name, arguments: input },
    ...(signature === undefined
      ? {}
      : { extra_content: { google: { thought_signature: writeSignature(signature, "google") } } }),
  };
}

export function openChatStream(context: TranslationContext): StreamWriter {
  let head: Members = {};
  let begun = false;
  let out: OutEvent[] = [];
  let usage: Usage | undefined;
  /** A call whose first input may still come with the same event. */
  let started: { choice: number; call: number; written: Members } | undefined;
  /** A tool without arguments is called with an empty object; its stream says nothing at all. */
  const withoutInput = new Set<string>();

  const chunk = (choice: number, delta: Members, finish: string | null): void => {
    out.push({ data: { ...head, choices: [{ index: choice, delta, logprobs: null, finish_reason: finish }] } });
  };
  const flush = (): void => {
    if (started === undefined) return;
    const { choice, call, written } = started;
    started = undefined;
    chunk(choice, { tool_calls: [{ index: call, ...written }] }, null);
  };
  const input = (choice: number, call: number, json: string): void => {
    if (started?.choice === choice && started.call === call) {
      const { written } = started;
      started = {
        choice,
        call,
        written: { ...written, function: { ...(written.function as Members), arguments: json } },
      };
      flush();
    } else {
      flush();
      chunk(choice, { tool_calls: [{ index: call, function: { arguments: json } }] }, null);
    }
  };
  const begin = (id: string | undefined, model: string | undefined): void => {
    if (begun) return;
    begun = true;
    head = {
      id: id ?? `chatcmpl-${context.newId()}`,
      object: "chat.completion.chunk",
      created: context.createdSeconds,
      model: model ?? context.model,
    };
    chunk(0, { role: "assistant", content: "" }, null);
  };

  return {
    begin,
    text(choice, text) {
      if (text !== "") chunk(choice, { content: text }, null);
    },
    thought(choice, text) {
      if (text !== "") chunk(choice, { reasoning_content: text }, null);
    },
    signed() {
      // There is no member for it.
    },
    redacted() {
      // There is no member for it.
    },
    toolCall(choice, call, id, name, signature) {
      flush();
      withoutInput.add(`${choice} ${call}`);
      started = { choice, call, written: toolCall(id ?? `call_${context.newId()}`, name, "", signature) };
    },
    toolInput(choice, call, json) {
      if (json === "") return;
      withoutInput.delete(`${choice} ${call}`);
      input(choice, call, json);
    },
    toolEnd(choice, call) {
      if (withoutInput.delete(`${choice} ${call}`)) input(choice, call, "{}");
    },
    finish(choice, finish) {
      flush();
      chunk(choice, {}, FINISH[finish]);
    },
    usage(counted) {
      usage = counted;
    },
    take() {
      flush();
      const taken = out;
      out = [];
      return taken;
    },
    end() {
      if (context.includeUsage && usage) out.push({ data: { ...head, choices: [], usage: chatUsage(usage) } });
      out.push({ data: "[DONE]" });
    },
  };
}
