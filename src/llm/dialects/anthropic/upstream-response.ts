/**
 * An answer of an Anthropic provider in the common form.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerSink, Finish } from "../../canonical/answer.ts";
import { textOrNothing } from "../../canonical/fields.ts";
import type { Signature } from "../../canonical/signature.ts";
import type { StreamReader } from "../../canonical/translation.ts";
import { ENDED_EARLY, UpstreamAnswerError } from "../../canonical/translation-error.ts";
import { errorMessage } from "../../request/error-shape.ts";
import { mergeUsage, readUsage } from "../../usage/usage.ts";

export function readMessagesAnswer(body: Members, sink: AnswerSink): void {
  if (!Array.isArray(body.content)) throw new UpstreamAnswerError(502, "the provider's answer has no content");
  sink.begin(textOrNothing(body.id), textOrNothing(body.model));
  let call = 0;
  for (const block of body.content.filter(isMembers)) {
    if (block.type === "text") sink.text(0, String(block.text));
    else if (block.type === "thinking") {
      sink.thought(0, String(block.thinking));
      const signature = signatureOf(block.signature);
      if (signature) sink.signed(0, signature);
    } else if (block.type === "redacted_thinking") {
      const signature = signatureOf(block.data);
      if (signature) sink.redacted(0, signature);
    } else if (block.type === "tool_use") {
      sink.toolCall(0, call, textOrNothing(block.id), String(block.name));
      sink.toolInput(0, call, JSON.stringify(block.input ?? {}));
      sink.toolEnd(0, call);
      call += 1;
    }
  }
  sink.finish(0, finishOf(body.stop_reason));
  const usage = readUsage(body.usage);
  if (usage) sink.usage(usage);
}

export function openMessagesReader(sink: AnswerSink): StreamReader {
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
          sink.begin(textOrNothing(message.id), textOrNothing(message.model));
          break;
        }
        case "content_block_start": {
          const block = isMembers(data.content_block) ? data.content_block : {};
          isCall = block.type === "tool_use";
          if (isCall) sink.toolCall(0, calls++, textOrNothing(block.id), String(block.name));
          else if (block.type === "redacted_thinking") {
            const signature = signatureOf(block.data);
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
            finish = finishOf(data.delta.stop_reason);
            sink.finish(0, finish);
          }
          break;
        case "error":
          throw new UpstreamAnswerError(500, errorMessage(data, ""));
      }
    },
    // A stream without a reason to stop was cut: the client must not take it for whole.
    end() {
      if (finish === undefined) throw new UpstreamAnswerError(502, ENDED_EARLY);
      const counted = readUsage(usage);
      if (counted) sink.usage(counted);
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
        const signature = signatureOf(delta.signature);
        if (signature) sink.signed(0, signature);
        break;
      }
      case "input_json_delta":
        sink.toolInput(0, calls - 1, String(delta.partial_json));
        break;
    }
  }
}

export function signatureOf(value: unknown): Signature | undefined {
  return typeof value === "string" && value !== "" ? { signer: "anthropic", value } : undefined;
}

export function finishOf(stopReason: unknown): Finish {
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
