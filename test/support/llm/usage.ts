import type { LlmAttributes } from "../../../src/core/request-attributes.ts";
import { createUsageTap, settleUsage } from "../../../src/llm/usage/response-usage.ts";

export const SSE = "text/event-stream; charset=utf-8";
export const AWS = "application/vnd.amazon.eventstream";

export function tap(
  contentType: string,
  chunks: readonly Buffer[],
  how: "end" | "abort" = "end",
  encoding?: string,
): LlmAttributes {
  const attributes: LlmAttributes = { estimatedTokens: 7 };
  const watched = createUsageTap(contentType, encoding, (report) => settleUsage(attributes, report));
  for (const chunk of chunks) watched.data(chunk);
  watched[how]();
  return attributes;
}

export const sse = (...events: unknown[]): Buffer =>
  Buffer.from(events.map((event) => `data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`).join(""));
export const bytewise = (bytes: Buffer): Buffer[] => [...bytes].map((byte) => Buffer.from([byte]));

export const chunk = (content: string, extra = {}) => ({
  id: "1",
  object: "chat.completion.chunk",
  model: "gpt-x",
  choices: [{ index: 0, delta: { content } }],
  usage: null,
  ...extra,
});
export const chatUsage = {
  prompt_tokens: 11,
  completion_tokens: 4,
  total_tokens: 15,
  prompt_tokens_details: { cached_tokens: 8 },
};
export const claudeStart = {
  type: "message_start",
  message: {
    model: "claude-x",
    usage: { input_tokens: 5, cache_read_input_tokens: 95, cache_creation_input_tokens: 0, output_tokens: 1 },
  },
};
export const claudeText = {
  type: "content_block_delta",
  index: 0,
  delta: { type: "text_delta", text: "one two three four" },
};
