/**
 * Records the parts of bodies that outputs show: `llm.prompt` and `llm.completion`, if an expression of the access log or
 * of a span reads them, and the first 64 KiB of each body in a trace.
 */

import { peerInput } from "../base/peer-inputs.ts";
import type { Expression } from "../cel/expression.ts";
import type { Exchange, GatewayResponse, RequestBody } from "../core/exchange.ts";
import type { LlmAttributes, LlmMessage } from "../core/request-attributes.ts";
import { type BodyStream, observeChunks } from "../http/body.ts";
import { isMembers, type Members } from "../json/json.ts";
import { readMembers } from "../json/read-json.ts";
import { createContentReader } from "../llm/usage/response-content.ts";
import type { BodyStage } from "./trace/record.ts";
import { redactBody } from "./trace/redact.ts";
import type { Trace } from "./trace/trace.ts";

const BODY = peerInput("client/recorded-body");

/** A larger request body is not parsed again for a record. */
const MAX_COMPLETION_CHARS = 64 * 1024;

/** Observes the response of a call to a model, and sets `llm.completion` when the response ends. */
export function recordCompletion(exchange: Exchange): void {
  exchange.records.watchResponse = (response) => {
    const { llm } = exchange.attributes;
    if (llm === undefined || response.status >= 400) return;
    const { headers } = response;
    let text = "";
    const reader = createContentReader(headers.get("content-type"), headers.get("content-encoding"), (part) => {
      if (text.length < MAX_COMPLETION_CHARS) text += part.slice(0, MAX_COMPLETION_CHARS - text.length);
    });
    const observer: NonNullable<GatewayResponse["observers"]>[number] = {
      data: reader.data,
      end() {
        reader.end();
        if (text !== "") setHidden(llm, "completion", [text]);
      },
    };
    response.observers = [...(response.observers ?? []), observer];
  };
}

/** Sets `llm.prompt` if the body of the request is available. */
export function recordPrompt({ attributes: { llm }, request: { body } }: Exchange): void {
  if (llm === undefined || body.kind !== "bytes" || body.bytes.length > BODY.maxBytes) return;
  try {
    const parsed = readMembers(BODY, body.bytes);
    if (parsed !== undefined) setHidden(llm, "prompt", promptMessages(parsed));
  } catch {
    // A body that is nested too deeply has no prompt in the records.
  }
}

/**
 * Returns whether an expression reads the attribute by its name. An expression that reads all of `llm` does not ask for
 * the conversation.
 */
export function readsContent({ paths }: Expression, path: string): boolean {
  return [...paths].some((read) => read === path || read.startsWith(`${path}.`) || read.startsWith(`${path}[`));
}

/** An expression that outputs all of `llm` must not contain the conversation, so the property is not enumerable. */
function setHidden<Name extends "prompt" | "completion">(
  llm: LlmAttributes,
  name: Name,
  value: LlmAttributes[Name],
): void {
  Object.defineProperty(llm, name, { value, enumerable: false, configurable: true });
}

/** Reads the messages of a request in any dialect. Parts without text, such as images, are omitted. */
export function promptMessages(body: Members): LlmMessage[] {
  const { system, instructions, systemInstruction, system_instruction, messages, input, contents, prompt } = body;
  const rules = textIn(system ?? instructions ?? systemInstruction ?? system_instruction);
  const turns = messages ?? input ?? contents ?? prompt ?? [];
  return [
    ...(rules === "" ? [] : [{ role: "system", content: rules }]),
    ...(Array.isArray(turns) ? turns : [turns]).map((turn) => ({ role: roleOf(turn), content: textIn(turn) })),
  ];
}

function roleOf(turn: unknown): string {
  if (!isMembers(turn)) return "user";
  if (typeof turn.role === "string") return turn.role;
  if (turn.type === "function_call" || turn.type === "reasoning") return "assistant";
  return turn.type === "function_call_output" ? "tool" : "user";
}

function textIn(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(textIn).join("");
  if (!isMembers(value)) return "";
  return textIn(value.text ?? value.content ?? value.parts ?? value.output ?? value.arguments);
}

const MAX_CAPTURED_BYTES = 64 * 1024;

export class BodyCapture {
  #chunks: Buffer[] = [];
  #bytes = 0;
  #truncated = false;
  #emitted = false;

  add(chunk: Buffer): void {
    const room = MAX_CAPTURED_BYTES - this.#bytes;
    if (chunk.length > room) this.#truncated = true;
    if (room <= 0) return;
    const part = chunk.subarray(0, room);
    this.#chunks.push(part);
    this.#bytes += part.length;
  }

  /** Emits at most one snapshot, and none for an empty body. */
  emit(trace: Trace | undefined, stage: BodyStage, contentType: string | undefined): void {
    if (this.#bytes === 0 || this.#emitted) return;
    this.#emitted = true;
    const body = redactBody(Buffer.concat(this.#chunks), contentType).toString("base64");
    this.#chunks = [];
    trace?.point({
      type: "bodySnapshot",
      stage,
      body,
      ...(this.#truncated ? { truncated: true as const } : {}),
    });
  }
}

/** Captures the body of a traced request, immediately if it is buffered and otherwise while it streams. */
export function captureSentBody(
  trace: Trace,
  body: Buffer | BodyStream | undefined,
  contentType: string | undefined,
): void {
  if (body === undefined) return;
  const capture = new BodyCapture();
  const done = (): void => capture.emit(trace, "final request", contentType);
  if (Buffer.isBuffer(body)) {
    capture.add(body);
    done();
    return;
  }
  observeChunks(body, (chunk) => capture.add(chunk));
  body.once("end", done);
  body.once("close", done);
}

export function bodyBytes(body: RequestBody): Buffer | BodyStream | undefined {
  return body.kind === "bytes" ? body.bytes : body.kind === "stream" ? body.stream : undefined;
}
