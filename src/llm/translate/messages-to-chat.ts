/**
 * A client that speaks Anthropic's messages and a provider that speaks OpenAI chat.
 */
import { errorMessage } from "../dialects/error-shape.ts";
import { readUsage, type Usage } from "../usage/usage.ts";
import { isMembers, type Members } from "../wire/json.ts";
import { chatRequestOf } from "./messages-request.ts";
import {
  type OutEvent,
  type StreamTranslation,
  type Translation,
  type TranslationContext,
  UpstreamAnswerError,
} from "./translation.ts";

export const messagesToChat: Translation = { request: chatRequestOf, response, stream };

function response(body: Members, context: TranslationContext): Members {
  const choice = Array.isArray(body.choices) && isMembers(body.choices[0]) ? body.choices[0] : undefined;
  if (choice === undefined) throw new UpstreamAnswerError(502, "the provider's answer has no choices");
  const message = isMembers(choice.message) ? choice.message : {};
  const content: Members[] = [];
  if (typeof message.reasoning_content === "string" && message.reasoning_content !== "")
    content.push({ type: "thinking", thinking: message.reasoning_content, signature: "" });
  const said = typeof message.content === "string" && message.content !== "" ? message.content : message.refusal;
  if (typeof said === "string" && said !== "") content.push({ type: "text", text: said });
  for (const call of Array.isArray(message.tool_calls) ? message.tool_calls.filter(isMembers) : []) {
    const called = isMembers(call.function) ? call.function : {};
    content.push({
      type: "tool_use",
      id: String(call.id),
      name: String(called.name),
      input: argumentsOf(called.arguments),
    });
  }
  const usage = readUsage(body.usage);
  return {
    id: typeof body.id === "string" ? body.id : `msg_${context.newId()}`,
    type: "message",
    role: "assistant",
    model: typeof body.model === "string" ? body.model : context.model,
    content,
    stop_reason: stopReasonOf(choice.finish_reason),
    stop_sequence: null,
    usage: messagesUsage(usage),
  };
}

/** A model may write arguments that are no JSON; they are handed on as text rather than lost. */
function argumentsOf(value: unknown): Members {
  if (typeof value !== "string" || value.trim() === "") return {};
  try {
    const parsed: unknown = JSON.parse(value);
    return isMembers(parsed) ? parsed : { arguments: parsed };
  } catch {
    return { arguments: value };
  }
}

function stopReasonOf(finish: unknown): string {
  switch (finish) {
    case "length":
      return "max_tokens";
    case "tool_calls":
    case "function_call":
      return "tool_use";
    case "content_filter":
      return "refusal";
    default:
      return "end_turn";
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

type OpenBlock = "text" | "thinking" | "tool";

function stream(context: TranslationContext): StreamTranslation {
  let begun = false;
  let open: OpenBlock | undefined;
  let index = -1;
  let toolIndex: unknown;
  let stopReason: string | undefined;
  let usage: Usage | undefined;

  const event = (type: string, data: Members): OutEvent => ({ event: type, data: { type, ...data } });
  const close = (): OutEvent[] => {
    if (open === undefined) return [];
    open = undefined;
    return [event("content_block_stop", { index })];
  };
  const start = (kind: OpenBlock, block: Members): OutEvent[] => {
    const closed = close();
    open = kind;
    index += 1;
    return [...closed, event("content_block_start", { index, content_block: block })];
  };
  const delta = (value: Members): OutEvent => event("content_block_delta", { index, delta: value });

  function toolDelta(call: Members): OutEvent[] {
    const called = isMembers(call.function) ? call.function : {};
    const out: OutEvent[] = [];
    // A new index is a new call; servers that leave the index out give each call its id once.
    if (open !== "tool" || call.index !== toolIndex || (typeof call.id === "string" && call.index === undefined)) {
      toolIndex = call.index;
      out.push(
        ...start("tool", {
          type: "tool_use",
          id: typeof call.id === "string" ? call.id : `toolu_${context.newId()}`,
          name: String(called.name ?? ""),
          input: {},
        }),
      );
    }
    if (typeof called.arguments === "string" && called.arguments !== "")
      out.push(delta({ type: "input_json_delta", partial_json: called.arguments }));
    return out;
  }

  return {
    event(_name, data) {
      if (isMembers(data.error)) throw new UpstreamAnswerError(500, errorMessage(data, ""));
      const out: OutEvent[] = [];
      if (!begun) {
        begun = true;
        const message = {
          id: typeof data.id === "string" && data.id !== "" ? data.id : `msg_${context.newId()}`,
          type: "message",
          role: "assistant",
          model: typeof data.model === "string" && data.model !== "" ? data.model : context.model,
          content: [],
          stop_reason: null,
          stop_sequence: null,
          usage: messagesUsage(undefined),
        };
        out.push(event("message_start", { message }));
      }
      usage = readUsage(data.usage) ?? usage;
      const choice = Array.isArray(data.choices) && isMembers(data.choices[0]) ? data.choices[0] : undefined;
      const said = choice && isMembers(choice.delta) ? choice.delta : {};
      const thought = said.reasoning_content ?? said.reasoning;
      if (typeof thought === "string" && thought !== "") {
        if (open !== "thinking") out.push(...start("thinking", { type: "thinking", thinking: "", signature: "" }));
        out.push(delta({ type: "thinking_delta", thinking: thought }));
      }
      const words = said.content ?? said.refusal;
      if (typeof words === "string" && words !== "") {
        if (open !== "text") out.push(...start("text", { type: "text", text: "" }));
        out.push(delta({ type: "text_delta", text: words }));
      }
      for (const call of Array.isArray(said.tool_calls) ? said.tool_calls.filter(isMembers) : [])
        out.push(...toolDelta(call));
      if (typeof choice?.finish_reason === "string") stopReason = stopReasonOf(choice.finish_reason);
      return out;
    },
    end() {
      if (stopReason === undefined) throw new UpstreamAnswerError(502, "the provider's stream ended early");
      return [
        ...close(),
        event("message_delta", {
          delta: { stop_reason: stopReason, stop_sequence: null },
          usage: messagesUsage(usage),
        }),
        event("message_stop", {}),
      ];
    },
  };
}
