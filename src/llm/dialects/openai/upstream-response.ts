/**
 * An answer of an OpenAI chat provider in the common form. Servers of this dialect differ: thoughts under three names or
 * among the content, calls without an index or with a new id on an old one, `stop` as the reason of a tool call.
 */

import { isMembers, type Members } from "../../../json/json.ts";
import type { AnswerSink, Finish } from "../../canonical/answer.ts";
import { textOrNothing } from "../../canonical/fields.ts";
import { readSignature } from "../../canonical/signature.ts";
import type { StreamReader } from "../../canonical/translation.ts";
import { ENDED_EARLY, UpstreamAnswerError } from "../../canonical/translation-error.ts";
import { errorMessage } from "../../request/error-shape.ts";
import { readUsage } from "../../usage/usage.ts";

export function readChatAnswer(body: Members, sink: AnswerSink): void {
  const choices = Array.isArray(body.choices) ? body.choices.filter(isMembers) : [];
  if (choices.length === 0) throw new UpstreamAnswerError(502, "the provider's answer has no choices");
  sink.begin(textOrNothing(body.id), textOrNothing(body.model));
  for (const [at, choice] of choices.entries()) {
    const message = isMembers(choice.message) ? choice.message : {};
    readSaid(message, at, sink);
    const calls = Array.isArray(message.tool_calls) ? message.tool_calls.filter(isMembers) : [];
    for (const [call, one] of calls.entries()) {
      const called = isMembers(one.function) ? one.function : {};
      sink.toolCall(at, call, textOrNothing(one.id), String(called.name ?? ""), signatureOf(one));
      sink.toolInput(at, call, argumentsOf(called.arguments));
      sink.toolEnd(at, call);
    }
    sink.finish(at, finishOf(choice.finish_reason, calls.length > 0));
  }
  const usage = readUsage(body.usage);
  if (usage) sink.usage(usage);
}

export function openChatReader(sink: AnswerSink): StreamReader {
  /** By choice: the calls so far. */
  const calls = new Map<number, { index: unknown; id: unknown }[]>();
  const finished = new Map<number, Finish>();

  function toolDelta(choice: number, delta: Members): void {
    const known = calls.get(choice) ?? [];
    calls.set(choice, known);
    const called = isMembers(delta.function) ? delta.function : {};
    const call = callOf(known, delta);
    if (call === known.length) {
      known.push({ index: delta.index, id: textOrNothing(delta.id) });
      sink.toolCall(choice, call, textOrNothing(delta.id), String(called.name ?? ""), signatureOf(delta));
    }
    const json = argumentsOf(called.arguments);
    if (json !== "") sink.toolInput(choice, call, json);
  }

  return {
    event(_name, data) {
      if (isMembers(data.error)) throw new UpstreamAnswerError(500, errorMessage(data, ""));
      sink.begin(textOrNothing(data.id), textOrNothing(data.model));
      const usage = readUsage(data.usage);
      if (usage) sink.usage(usage);
      if (!Array.isArray(data.choices)) return;
      for (const choice of data.choices) {
        if (!isMembers(choice)) continue;
        const at = typeof choice.index === "number" ? choice.index : 0;
        if (isMembers(choice.delta)) {
          readSaid(choice.delta, at, sink);
          if (Array.isArray(choice.delta.tool_calls))
            for (const call of choice.delta.tool_calls) if (isMembers(call)) toolDelta(at, call);
        }
        if (typeof choice.finish_reason === "string") finished.set(at, finishOf(choice.finish_reason, calls.has(at)));
      }
    },
    end() {
      if (!finished.has(0)) throw new UpstreamAnswerError(502, ENDED_EARLY);
      for (const [choice, finish] of finished) {
        const count = calls.get(choice)?.length ?? 0;
        for (let call = 0; call < count; call++) sink.toolEnd(choice, call);
        sink.finish(choice, finish);
      }
    },
  };
}

/** Which call a piece belongs to; the number of known ones if it is new. */
function callOf(known: readonly { index: unknown; id: unknown }[], { index, id }: Members): number {
  const named = textOrNothing(id);
  if (index === undefined || index === null)
    // Servers that leave the index out give each call its id once.
    return named === undefined
      ? Math.max(0, known.length - 1)
      : orNew(
          known.findLastIndex((one) => one.id === named),
          known,
        );
  const at = known.findLastIndex((one) => one.index === index);
  const other = at >= 0 && named !== undefined && known[at]?.id !== undefined && known[at]?.id !== named;
  return other ? known.length : orNew(at, known);
}

function orNew(at: number, known: readonly unknown[]): number {
  return at < 0 ? known.length : at;
}

/** Words and thoughts, whole or a piece of them. */
function readSaid(said: Members, choice: number, sink: AnswerSink): void {
  const thought = said.reasoning_content ?? said.reasoning;
  if (typeof thought === "string" && thought !== "") sink.thought(choice, thought);
  const words = said.content;
  if (typeof words === "string") {
    if (words !== "") sink.text(choice, words);
  } else if (Array.isArray(words)) for (const part of words) readPart(part, choice, sink);
  if (typeof said.refusal === "string" && said.refusal !== "") sink.text(choice, said.refusal);
}

/** Mistral's thinking models answer with a list. */
function readPart(part: unknown, choice: number, sink: AnswerSink): void {
  if (!isMembers(part)) return;
  if (part.type === "thinking") {
    for (const inner of Array.isArray(part.thinking) ? part.thinking : [part.thinking])
      sink.thought(choice, isMembers(inner) ? String(inner.text ?? "") : String(inner ?? ""));
  } else if (typeof part.text === "string") sink.text(choice, part.text);
  else if (part.type !== "reference")
    throw new UpstreamAnswerError(
      502,
      `the provider's answer holds ${JSON.stringify(part.type)}, which cannot be translated`,
    );
}

/** Some servers write the arguments as an object. */
function argumentsOf(value: unknown): string {
  return typeof value === "string" ? value : isMembers(value) ? JSON.stringify(value) : "";
}

function signatureOf(call: Members) {
  const google = isMembers(call.extra_content) ? call.extra_content.google : undefined;
  return isMembers(google) ? readSignature(google.thought_signature, "google") : undefined;
}

function finishOf(reason: unknown, hasCalls: boolean): Finish {
  switch (reason) {
    case "length":
    case "model_length":
      return "length";
    case "content_filter":
      return "filter";
    default:
      return hasCalls ? "toolCalls" : "stop";
  }
}
