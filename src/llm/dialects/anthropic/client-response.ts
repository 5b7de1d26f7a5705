/**
 * An Anthropic answer from the common form, whole or event by event: blocks one after the other.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerPart, Finish, WholeAnswer } from "../../canonical/answer.ts";
import { writeSignature } from "../../canonical/signature.ts";
import { ToolOrder } from "../../canonical/tool-order.ts";
import type { OutEvent, StreamWriter, TranslationContext } from "../../canonical/translation.ts";
import type { Usage } from "../../usage/usage.ts";

const STOP: Readonly<Record<Finish, string>> = {
  stop: "end_turn",
  length: "max_tokens",
  toolCalls: "tool_use",
  filter: "refusal",
};

export function writeMessagesAnswer(answer: WholeAnswer, context: TranslationContext): Members {
  const choice = answer.choices[0];
  return {
    id: answer.id ?? `msg_${context.newId()}`,
    type: "message",
    role: "assistant",
    model: answer.model ?? context.model,
    content: choice?.parts.map((part) => block(part, context)) ?? [],
    stop_reason: STOP[choice?.finish ?? "stop"],
    stop_sequence: null,
    usage: messagesUsage(answer.counted),
  };
}

function block(part: AnswerPart, context: TranslationContext): Members {
  switch (part.kind) {
    case "text":
      return { type: "text", text: part.text };
    case "thought": {
      const signature = part.signature === undefined ? "" : writeSignature(part.signature, "anthropic");
      if (part.isRedacted) return { type: "redacted_thinking", data: signature };
      return { type: "thinking", thinking: part.text, signature };
    }
    case "toolCall":
      return {
        type: "tool_use",
        id: part.id ?? `toolu_${context.newId()}`,
        name: part.name,
        input: inputOf(part.input),
      };
  }
}

/** A model may write arguments that are no JSON; they are handed on as text rather than lost. */
export function inputOf(json: string): Members {
  if (json.trim() === "") return {};
  try {
    const parsed: unknown = JSON.parse(json);
    return isMembers(parsed) ? parsed : { arguments: parsed };
  } catch {
    return { arguments: json };
  }
}

/** Here the input leaves out what was cached. */
function messagesUsage(usage: Usage | undefined): Members {
  const cached = usage?.cachedInputTokens ?? 0;
  const written = usage?.cacheCreationInputTokens ?? 0;
  return {
    input_tokens: Math.max(0, (usage?.inputTokens ?? 0) - cached - written),
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    output_tokens: usage?.outputTokens ?? 0,
  };
}

export function openMessagesStream(context: TranslationContext): StreamWriter {
  let out: OutEvent[] = [];
  let open: "text" | "thinking" | "tool" | undefined;
  let index = -1;
  let begun = false;
  let stopReason = STOP.stop;
  let usage: Usage | undefined;

  const event = (type: string, data: Members): void => {
    out.push({ event: type, data: { type, ...data } });
  };
  const close = (): void => {
    if (open === undefined) return;
    open = undefined;
    event("content_block_stop", { index });
  };
  const start = (kind: NonNullable<typeof open>, content: Members): void => {
    close();
    open = kind;
    index += 1;
    event("content_block_start", { index, content_block: content });
  };
  const delta = (value: Members): void => event("content_block_delta", { index, delta: value });
  const tools = new ToolOrder({
    start: ({ id, name }) => start("tool", { type: "tool_use", id: id ?? `toolu_${context.newId()}`, name, input: {} }),
    input: (json) => delta({ type: "input_json_delta", partial_json: json }),
    end: close,
  });
  const thinking = (): void => {
    if (open !== "thinking") start("thinking", { type: "thinking", thinking: "", signature: "" });
  };

  return {
    begin(id, model) {
      if (begun) return;
      begun = true;
      const message = {
        id: id ?? `msg_${context.newId()}`,
        type: "message",
        role: "assistant",
        model: model ?? context.model,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: messagesUsage(undefined),
      };
      event("message_start", { message });
    },
    text(choice, text) {
      if (choice !== 0 || text === "") return;
      tools.flush();
      if (open !== "text") start("text", { type: "text", text: "" });
      delta({ type: "text_delta", text });
    },
    thought(choice, text) {
      if (choice !== 0 || text === "") return;
      tools.flush();
      thinking();
      delta({ type: "thinking_delta", thinking: text });
    },
    signed(choice, signature) {
      if (choice !== 0 || open === "tool") return;
      thinking();
      delta({ type: "signature_delta", signature: writeSignature(signature, "anthropic") });
      close();
    },
    redacted(choice, signature) {
      if (choice !== 0) return;
      tools.flush();
      start("thinking", { type: "redacted_thinking", data: writeSignature(signature, "anthropic") });
      close();
    },
    toolCall(choice, call, id, name, signature) {
      if (choice === 0) tools.start({ call, id, name, signature });
    },
    toolInput(choice, call, json) {
      if (choice === 0) tools.input(call, json);
    },
    toolEnd(choice, call) {
      if (choice === 0) tools.end(call);
    },
    finish(choice, finish) {
      if (choice === 0) stopReason = STOP[finish];
    },
    usage(counted) {
      usage = counted;
    },
    take() {
      const taken = out;
      out = [];
      return taken;
    },
    end() {
      tools.flush();
      close();
      event("message_delta", { delta: { stop_reason: stopReason, stop_sequence: null }, usage: messagesUsage(usage) });
      event("message_stop", {});
    },
  };
}
