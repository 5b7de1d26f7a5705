/**
 * An answer of Amazon Bedrock's converse in the common form.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerSink } from "../../canonical/answer.ts";
import { textOrNothing } from "../../canonical/fields.ts";
import type { StreamReader } from "../../canonical/translation.ts";
import { ENDED_EARLY, UpstreamAnswerError } from "../../canonical/translation-error.ts";
import { errorMessage } from "../../request/error-shape.ts";
import { readUsage } from "../../usage/usage.ts";
import { finishOf, signatureOf } from "../anthropic/upstream-response.ts";

export function readConverseAnswer(body: Members, sink: AnswerSink): void {
  const message = isMembers(body.output) && isMembers(body.output.message) ? body.output.message : undefined;
  if (message === undefined) throw new UpstreamAnswerError(502, "the provider's answer has no message");
  sink.begin(undefined, undefined);
  let call = 0;
  for (const block of Array.isArray(message.content) ? message.content.filter(isMembers) : []) {
    if (typeof block.text === "string") sink.text(0, block.text);
    if (isMembers(block.reasoningContent)) {
      const { reasoningText, redactedContent } = block.reasoningContent;
      if (isMembers(reasoningText)) {
        sink.thought(0, String(reasoningText.text));
        const signature = signatureOf(reasoningText.signature);
        if (signature) sink.signed(0, signature);
      }
      const redacted = signatureOf(redactedContent);
      if (redacted) sink.redacted(0, redacted);
    }
    if (isMembers(block.toolUse)) {
      sink.toolCall(0, call, textOrNothing(block.toolUse.toolUseId), String(block.toolUse.name));
      sink.toolInput(0, call, JSON.stringify(block.toolUse.input ?? {}));
      sink.toolEnd(0, call);
      call += 1;
    }
  }
  sink.finish(0, finishOf(body.stopReason));
  const usage = readUsage(body.usage);
  if (usage) sink.usage(usage);
}

export function openConverseReader(sink: AnswerSink): StreamReader {
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
          if (tool) sink.toolCall(0, calls++, textOrNothing(tool.toolUseId), String(tool.name));
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
          sink.finish(0, finishOf(data.stopReason));
          break;
        case "metadata":
          usage = data.usage;
          break;
        case "exception":
          throw new UpstreamAnswerError(500, errorMessage(data, ""));
      }
    },
    end() {
      if (!finished) throw new UpstreamAnswerError(502, ENDED_EARLY);
      const counted = readUsage(usage);
      if (counted) sink.usage(counted);
    },
  };

  function readDelta(delta: Members): void {
    if (typeof delta.text === "string") sink.text(0, delta.text);
    else if (isMembers(delta.toolUse)) sink.toolInput(0, calls - 1, String(delta.toolUse.input ?? ""));
    else if (isMembers(delta.reasoningContent)) {
      const { text, signature, redactedContent } = delta.reasoningContent;
      if (typeof text === "string") sink.thought(0, text);
      const signed = signatureOf(signature);
      if (signed) sink.signed(0, signed);
      const redacted = signatureOf(redactedContent);
      if (redacted) sink.redacted(0, redacted);
    }
  }
}
