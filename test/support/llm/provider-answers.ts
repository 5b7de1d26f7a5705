/**
 * Responses of an OpenAI or Anthropic provider as bytes, as JSON or a stream, with a given text and usage, so that
 * tests can identify the provider of a response or charge.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { readMembers } from "../../../src/json/read-json.ts";

const RESPONSE = peerInput("llm-provider/response");

export type Family = "openAI" | "anthropic";

export interface AnswerPlan {
  readonly family: Family;
  readonly stream: boolean;
  /** Repeated until the answer has about `bytes`. */
  readonly word: string;
  readonly bytes: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

const PIECE_BYTES = 512;

/** The text of the answer, whatever its shape. */
export function textOf({ word, bytes }: AnswerPlan): string {
  return `${word} `.repeat(Math.max(1, Math.ceil(bytes / (word.length + 1))));
}

export function answerBytes(plan: AnswerPlan): Buffer {
  if (!plan.stream)
    return response(200, "application/json", JSON.stringify(plan.family === "openAI" ? chat(plan) : message(plan)));
  const body = (plan.family === "openAI" ? chatEvents(plan) : messageEvents(plan)).join("");
  return chunked(body);
}

export function errorBytes(status: number, headers: readonly string[] = []): Buffer {
  return response(status, "application/json", JSON.stringify({ error: { message: `canned ${status}` } }), headers);
}

/** A prompt that does not fit the model. */
export function tooLongBytes(): Buffer {
  const error = { message: "prompt is too long: 210000 tokens > 200000 maximum", type: "invalid_request_error" };
  return response(400, "application/json", JSON.stringify({ type: "error", error }));
}

function response(status: number, type: string, body: string, headers: readonly string[] = []): Buffer {
  const bytes = Buffer.from(body);
  const head = [`HTTP/1.1 ${status} Said`, `content-type: ${type}`, `content-length: ${bytes.length}`, ...headers];
  return Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`), bytes]);
}

function chunked(body: string): Buffer {
  const parts = ["HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"];
  for (let at = 0; at < body.length; at += 4096) {
    const piece = body.slice(at, at + 4096);
    parts.push(`${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`);
  }
  return Buffer.from(`${parts.join("")}0\r\n\r\n`);
}

function pieces(text: string): string[] {
  const all: string[] = [];
  for (let at = 0; at < text.length; at += PIECE_BYTES) all.push(text.slice(at, at + PIECE_BYTES));
  return all;
}

function chatUsage({ inputTokens, outputTokens }: AnswerPlan) {
  return { prompt_tokens: inputTokens, completion_tokens: outputTokens, total_tokens: inputTokens + outputTokens };
}

function chat(plan: AnswerPlan): object {
  const choice = { index: 0, message: { role: "assistant", content: textOf(plan) }, finish_reason: "stop" };
  return {
    id: "c",
    object: "chat.completion",
    created: 1,
    model: plan.word,
    choices: [choice],
    usage: chatUsage(plan),
  };
}

function message(plan: AnswerPlan): object {
  return {
    id: "m",
    type: "message",
    role: "assistant",
    model: plan.word,
    content: [{ type: "text", text: textOf(plan) }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: { input_tokens: plan.inputTokens, output_tokens: plan.outputTokens },
  };
}

function chatEvents(plan: AnswerPlan): string[] {
  const chunk = (choices: object[], usage: object | null): string =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: plan.word, choices, usage })}\n\n`;
  return [
    ...pieces(textOf(plan)).map((content) => chunk([{ index: 0, delta: { content }, finish_reason: null }], null)),
    chunk([{ index: 0, delta: {}, finish_reason: "stop" }], null),
    chunk([], chatUsage(plan)),
    "data: [DONE]\n\n",
  ];
}

function messageEvents(plan: AnswerPlan): string[] {
  const event = (type: string, value: object): string =>
    `event: ${type}\ndata: ${JSON.stringify({ type, ...value })}\n\n`;
  const usage = { input_tokens: plan.inputTokens, output_tokens: 1 };
  return [
    event("message_start", { message: { ...message(plan), content: [], stop_reason: null, usage } }),
    event("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
    ...pieces(textOf(plan)).map((text) =>
      event("content_block_delta", { index: 0, delta: { type: "text_delta", text } }),
    ),
    event("content_block_stop", { index: 0 }),
    event("message_delta", { delta: { stop_reason: "end_turn" }, usage: { output_tokens: plan.outputTokens } }),
    event("message_stop", {}),
  ];
}

/** The text in an answer that reached a client of either dialect. */
export function readText(body: string, family: Family, stream: boolean): string {
  if (!stream) return textIn(readMembers(RESPONSE, body), family, false);
  return body
    .split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line) => textIn(readMembers(RESPONSE, line.slice(6)), family, true))
    .join("");
}

interface Shape {
  readonly choices?: readonly { message?: { content?: string }; delta?: { content?: string } }[];
  readonly content?: readonly { text?: string }[];
  readonly delta?: { text?: string };
}

function textIn(value: object | undefined, family: Family, stream: boolean): string {
  const shape: Shape = value ?? {};
  if (family === "openAI") {
    const choice = shape.choices?.[0];
    return (stream ? choice?.delta?.content : choice?.message?.content) ?? "";
  }
  return (stream ? shape.delta?.text : shape.content?.[0]?.text) ?? "";
}
