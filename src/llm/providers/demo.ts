/**
 * The demo provider's words: deterministic answers with usage, for chat, responses and embeddings, whole or as a
 * stream. It needs no network and no key; other dialects reach it by translation, like any chat provider.
 */
import { createHash } from "node:crypto";
import { isMembers, type Members } from "../../json/json.ts";
import type { OutEvent } from "../canonical/translation.ts";
import { estimateTextTokens } from "../usage/estimate-tokens.ts";

export const DEMO_MODEL = "demo";
const DIMENSIONS = 8;

export interface DemoCall {
  readonly body: Members;
  readonly inputTokens: number;
  readonly createdSeconds: number;
}

export function demoChat(call: DemoCall): Members {
  const { id, model, words } = answerTo(call, lastUserText(call.body.messages));
  return {
    id,
    object: "chat.completion",
    created: call.createdSeconds,
    model,
    choices: [{ index: 0, message: { role: "assistant", content: words.join("") }, finish_reason: "stop" }],
    usage: chatUsage(call, words),
  };
}

export function demoChatStream(call: DemoCall): OutEvent[] {
  const { id, model, words } = answerTo(call, lastUserText(call.body.messages));
  const head = { id, object: "chat.completion.chunk", created: call.createdSeconds, model };
  const chunk = (delta: Members, finish: string | null): OutEvent => ({
    data: { ...head, choices: [{ index: 0, delta, finish_reason: finish }] },
  });
  const options = call.body.stream_options;
  const wantsUsage = isMembers(options) && options.include_usage === true;
  return [
    chunk({ role: "assistant", content: "" }, null),
    ...words.map((content) => chunk({ content }, null)),
    chunk({}, "stop"),
    ...(wantsUsage ? [{ data: { ...head, choices: [], usage: chatUsage(call, words) } }] : []),
    { data: "[DONE]" as const },
  ];
}

export function demoResponse(call: DemoCall): Members {
  const { id, model, words } = answerTo(call, lastUserText(call.body.input));
  return responseObject(call, id, model, words, "completed");
}

export function demoResponseStream(call: DemoCall): OutEvent[] {
  const { id, model, words } = answerTo(call, lastUserText(call.body.input));
  const item = { id: `msg_${id}`, type: "message", status: "in_progress", role: "assistant", content: [] };
  const place = { item_id: item.id, output_index: 0, content_index: 0 };
  const part = { type: "output_text", text: words.join(""), annotations: [] };
  const events: Members[] = [
    { type: "response.created", response: responseObject(call, id, model, [], "in_progress") },
    { type: "response.output_item.added", output_index: 0, item },
    { type: "response.content_part.added", ...place, part: { ...part, text: "" } },
    ...words.map((delta) => ({ type: "response.output_text.delta", ...place, delta })),
    { type: "response.output_text.done", ...place, text: part.text },
    { type: "response.content_part.done", ...place, part },
    { type: "response.output_item.done", output_index: 0, item: { ...item, status: "completed", content: [part] } },
    { type: "response.completed", response: responseObject(call, id, model, words, "completed") },
  ];
  return events.map((data, i) => ({ event: String(data.type), data: { ...data, sequence_number: i } }));
}

export function demoEmbeddings(call: DemoCall): Members {
  const { input } = call.body;
  const texts = Array.isArray(input) ? input : [input];
  const data = texts.map((text, index) => ({ object: "embedding", index, embedding: embed(JSON.stringify(text)) }));
  return {
    object: "list",
    data,
    model: modelOf(call.body),
    usage: { prompt_tokens: call.inputTokens, total_tokens: call.inputTokens },
  };
}

export function demoModels(): Members {
  return { object: "list", data: [{ id: DEMO_MODEL, object: "model", created: 0, owned_by: "demo" }] };
}

function answerTo(call: DemoCall, question: string): { id: string; model: string; words: string[] } {
  const id = createHash("sha256").update(JSON.stringify(call.body)).digest("hex").slice(0, 24);
  const said = question === "" ? "nothing" : `"${question.length > 200 ? `${question.slice(0, 200)}…` : question}"`;
  const text = `This is the demo provider. You said ${said}. Configure a real provider to get a real answer.`;
  return { id: `demo-${id}`, model: modelOf(call.body), words: text.match(/\s*\S+/g) ?? [] };
}

function responseObject(call: DemoCall, id: string, model: string, words: readonly string[], status: string): Members {
  const text = words.join("");
  const output = [
    {
      id: `msg_${id}`,
      type: "message",
      status,
      role: "assistant",
      content: [{ type: "output_text", text, annotations: [] }],
    },
  ];
  const done = status === "completed";
  const outputTokens = words.length;
  return {
    id: `resp_${id}`,
    object: "response",
    created_at: call.createdSeconds,
    status,
    model,
    output: done ? output : [],
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    parallel_tool_calls: true,
    temperature: 1,
    top_p: 1,
    tool_choice: "auto",
    tools: [],
    usage: done
      ? {
          input_tokens: call.inputTokens,
          input_tokens_details: { cached_tokens: 0 },
          output_tokens: outputTokens,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: call.inputTokens + outputTokens,
        }
      : null,
  };
}

function chatUsage(call: DemoCall, words: readonly string[]): Members {
  return {
    prompt_tokens: call.inputTokens,
    completion_tokens: words.length,
    total_tokens: call.inputTokens + words.length,
    prompt_tokens_details: { cached_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: 0 },
  };
}

function modelOf(body: Members): string {
  return typeof body.model === "string" ? body.model : DEMO_MODEL;
}

/** The text of the last message of the user; parts are joined. */
function lastUserText(messages: unknown): string {
  if (typeof messages === "string") return messages;
  if (!Array.isArray(messages)) return "";
  const last = messages.findLast((message) => isMembers(message) && message.role === "user") as Members | undefined;
  const content = last?.content;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.flatMap((part) => (isMembers(part) && typeof part.text === "string" ? [part.text] : [])).join(" ");
}

/** The same text always gets the same vector of length 1. */
function embed(text: string): number[] {
  const bytes = createHash("sha256").update(text).digest();
  const raw = Array.from({ length: DIMENSIONS }, (_, i) => (bytes[i] as number) - 127.5);
  const length = Math.hypot(...raw);
  return raw.map((value) => Number((value / length).toFixed(6)));
}

export function demoInputTokens(body: Members): number {
  const prompt = body.messages ?? body.input ?? "";
  return estimateTextTokens(Buffer.from(typeof prompt === "string" ? prompt : lastUserText(prompt)));
}
