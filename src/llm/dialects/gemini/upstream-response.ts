/**
 * An answer of a Gemini provider in the common form.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerSink, Finish } from "../../canonical/answer.ts";
import { textOrNothing } from "../../canonical/fields.ts";
import type { Signature } from "../../canonical/signature.ts";
import type { StreamReader } from "../../canonical/translation.ts";
import { ENDED_EARLY, UpstreamAnswerError } from "../../canonical/translation-error.ts";
import { errorMessage } from "../../request/error-shape.ts";
import { readUsage } from "../../usage/usage.ts";

const FILTERED = new Set([
  ...["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"],
]);

export function readGeminiAnswer(body: Members, sink: AnswerSink): void {
  sink.begin(textOrNothing(body.responseId), textOrNothing(body.modelVersion));
  const candidates = Array.isArray(body.candidates) ? body.candidates.filter(isMembers) : [];
  for (const [at, candidate] of candidates.entries()) {
    const calls = readParts(candidate, at, 0, sink);
    sink.finish(at, finishOf(candidate.finishReason, calls > 0));
  }
  // A prompt that was blocked has no candidates; the client sees an empty answer that was filtered.
  if (candidates.length === 0) sink.finish(0, "filter");
  const usage = readUsage(body.usageMetadata);
  if (usage) sink.usage(usage);
}

export function openGeminiReader(sink: AnswerSink): StreamReader {
  let usage: unknown;
  let finished = false;
  /** By candidate: how many tool calls it has made. */
  const calls: number[] = [];
  return {
    event(_name, data) {
      if (isMembers(data.error)) throw new UpstreamAnswerError(500, errorMessage(data, ""));
      if (isMembers(data.usageMetadata)) usage = data.usageMetadata;
      sink.begin(textOrNothing(data.responseId), textOrNothing(data.modelVersion));
      for (const candidate of Array.isArray(data.candidates) ? data.candidates : []) {
        if (!isMembers(candidate)) continue;
        const at = typeof candidate.index === "number" ? candidate.index : 0;
        calls[at] = readParts(candidate, at, calls[at] ?? 0, sink);
        if (typeof candidate.finishReason === "string") {
          finished = true;
          sink.finish(at, finishOf(candidate.finishReason, (calls[at] ?? 0) > 0));
        }
      }
      if (isMembers(data.promptFeedback) && typeof data.promptFeedback.blockReason === "string") {
        finished = true;
        sink.finish(0, "filter");
      }
    },
    end() {
      if (!finished) throw new UpstreamAnswerError(502, ENDED_EARLY);
      const counted = readUsage(usage);
      if (counted) sink.usage(counted);
    },
  };
}

/** Returns how many tool calls there are now. */
function readParts(candidate: Members, choice: number, callsBefore: number, sink: AnswerSink): number {
  let calls = callsBefore;
  const { content } = candidate;
  const parts = isMembers(content) && Array.isArray(content.parts) ? content.parts : [];
  for (const part of parts) {
    if (!isMembers(part)) continue;
    const signature = signatureOf(part.thoughtSignature);
    if (isMembers(part.functionCall)) {
      const { id, name, args } = part.functionCall;
      sink.toolCall(choice, calls, textOrNothing(id), String(name), signature);
      sink.toolInput(choice, calls, JSON.stringify(args ?? {}));
      sink.toolEnd(choice, calls);
      calls += 1;
    } else if (typeof part.text === "string") {
      if (part.thought === true) sink.thought(choice, part.text);
      else sink.text(choice, part.text);
    } else if (isMembers(part.inlineData) || isMembers(part.fileData))
      throw new UpstreamAnswerError(502, "the model answered with an image or a file, which cannot be translated");
    else if (isMembers(part.executableCode) || isMembers(part.codeExecutionResult))
      throw new UpstreamAnswerError(502, "the model ran code, which cannot be translated");
  }
  return calls;
}

function signatureOf(value: unknown): Signature | undefined {
  return typeof value === "string" && value !== "" ? { signer: "google", value } : undefined;
}

function finishOf(reason: unknown, hasCalls: boolean): Finish {
  if (reason === "MAX_TOKENS") return "length";
  if (typeof reason === "string" && FILTERED.has(reason)) return "filter";
  return hasCalls ? "toolCalls" : "stop";
}
