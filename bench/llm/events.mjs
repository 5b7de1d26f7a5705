/**
 * A chat stream of 100 events in the format of OpenAI: 97 words, the finish reason, the usage, and the end marker.
 */
export const usage = {
  prompt_tokens: 100,
  completion_tokens: 100,
  total_tokens: 200,
  prompt_tokens_details: { cached_tokens: 0 },
};

export function events() {
  const words = Array.from({ length: 97 }, (_, i) =>
    event([{ index: 0, delta: { content: ` word${i} and some more of it` }, finish_reason: null }]),
  );
  const end = event([{ index: 0, delta: {}, finish_reason: "stop" }]);
  return [...words, end, event([], { usage }), "data: [DONE]\n\n"];
}

function event(choices, more = {}) {
  const chunk = { id: "chatcmpl-bench", object: "chat.completion.chunk", created: 1, model: "bench", choices, ...more };
  return `data: ${JSON.stringify(chunk)}\n\n`;
}
