/**
 * An answer of Gemini's generateContent from the common form, whole or piece by piece. A call of a tool is always whole.
 */

import type { Members } from "../../../json/json.ts";
import type { AnswerPart, Finish, WholeAnswer } from "../../canonical/answer.ts";
import { compact } from "../../canonical/fields.ts";
import { type Signature, writeSignature } from "../../canonical/signature.ts";
import { type OrderedCall, ToolOrder } from "../../canonical/tool-order.ts";
import type { OutEvent, StreamWriter, TranslationContext } from "../../canonical/translation.ts";
import type { Usage } from "../../usage/usage.ts";
import { inputOf } from "../anthropic/client-response.ts";

const FINISH: Readonly<Record<Finish, string>> = {
  stop: "STOP",
  length: "MAX_TOKENS",
  toolCalls: "STOP",
  filter: "SAFETY",
};

export function writeGeminiAnswer(answer: WholeAnswer, context: TranslationContext): Members {
  return compact({
    candidates: answer.choices.map(({ parts, finish }, index) => ({
      content: { role: "model", parts: parts.flatMap(partOf) },
      finishReason: FINISH[finish],
      index,
    })),
    usageMetadata: usageMetadata(answer.counted),
    modelVersion: answer.model ?? context.model,
    responseId: answer.id ?? context.newId(),
  });
}

function partOf(part: AnswerPart): Members[] {
  switch (part.kind) {
    case "text":
      return [{ text: part.text }];
    case "thought":
      return part.isRedacted ? [] : [thoughtPart(part.text, part.signature)];
    case "toolCall":
      return [callPart(part, part.input)];
  }
}

function thoughtPart(text: string, signature: Signature | undefined): Members {
  return compact({ text, thought: true, thoughtSignature: signature && writeSignature(signature, "google") });
}

function callPart({ id, name, signature }: Pick<OrderedCall, "id" | "name" | "signature">, input: string): Members {
  return compact({
    functionCall: compact({ id, name, args: inputOf(input) }),
    thoughtSignature: signature && writeSignature(signature, "google"),
  });
}

/** Here thoughts are counted beside the output, and cached tokens are part of the prompt. */
function usageMetadata(usage: Usage | undefined): Members | undefined {
  if (usage === undefined) return undefined;
  return compact({
    promptTokenCount: usage.inputTokens,
    candidatesTokenCount: usage.outputTokens - (usage.reasoningTokens ?? 0),
    totalTokenCount: usage.totalTokens,
    cachedContentTokenCount: usage.cachedInputTokens,
    thoughtsTokenCount: usage.reasoningTokens,
  });
}

export function openGeminiStream(context: TranslationContext): StreamWriter {
  let out: OutEvent[] = [];
  let head: Members = {};
  let begun = false;
  const finishes: Finish[] = [];
  let usage: Usage | undefined;
  const orders = new Map<number, ToolOrder>();

  const piece = (choice: number, part: Members): void => {
    out.push({ data: { candidates: [{ content: { role: "model", parts: [part] }, index: choice }], ...head } });
  };
  const orderOf = (choice: number): ToolOrder => {
    let order = orders.get(choice);
    if (order === undefined) {
      let current: OrderedCall | undefined;
      let input = "";
      order = new ToolOrder({
        start(call) {
          current = call;
          input = "";
        },
        input(json) {
          input += json;
        },
        end() {
          if (current) piece(choice, callPart(current, input));
        },
      });
      orders.set(choice, order);
    }
    return order;
  };

  return {
    begin(id, model) {
      if (begun) return;
      begun = true;
      head = { modelVersion: model ?? context.model, responseId: id ?? context.newId() };
    },
    text(choice, text) {
      if (text !== "") piece(choice, { text });
    },
    thought(choice, text) {
      if (text !== "") piece(choice, thoughtPart(text, undefined));
    },
    signed(choice, signature) {
      piece(choice, thoughtPart("", signature));
    },
    redacted() {
      // There is no part for it.
    },
    toolCall: (choice, call, id, name, signature) => orderOf(choice).start({ call, id, name, signature }),
    toolInput: (choice, call, json) => orderOf(choice).input(call, json),
    toolEnd: (choice, call) => orderOf(choice).end(call),
    finish(choice, finish) {
      finishes[choice] = finish;
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
      for (const order of orders.values()) order.flush();
      const candidates = finishes.map((finish, index) => ({
        content: { role: "model", parts: [{ text: "" }] },
        finishReason: FINISH[finish],
        index,
      }));
      out.push({ data: compact({ candidates, usageMetadata: usageMetadata(usage), ...head }) });
    },
  };
}
