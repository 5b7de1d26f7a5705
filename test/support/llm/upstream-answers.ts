/**
 * The responses of the test provider in every dialect, complete and as streams.
 */
import { encodeEventStreamMessage } from "./event-stream.ts";

export const TEXT = ["Hello", " there", ", friend", "."];
/** What all providers count: 100 of input (80 cached where cached), 7 of output. */
export const COUNTS = { input: 100, cached: 80, written: 5, output: 7 };

export interface Call {
  readonly model: string;
  readonly body: Record<string, unknown>;
  readonly cached: boolean;
  readonly tool: boolean;
}

/** By the path that was asked for. */
export function dialect(path: string, call: Call): [whole: () => unknown, events: () => (string | Buffer)[]] {
  if (path.endsWith("/responses")) return [() => responses(call), () => responsesStream(call)];
  if (path.endsWith("/messages") || path.includes("awPredict")) return [() => message(call), () => messageStream(call)];
  if (path.includes("/invoke")) return [() => message(call), () => messageStream(call).map(wrapped)];
  if (path.includes("enerateContent")) return [() => gemini(call, TEXT.join("")), () => geminiStream(call)];
  if (path.includes("/converse")) return [() => converse(call), () => converseStream(call)];
  return [() => chat(call), () => chatStream(call)];
}

const data = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;
const event = (type: string, value: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...value })}\n\n`;
const ARGUMENTS = { city: "Rome" };

function toolName({ body }: Call): string {
  return JSON.stringify(body.tools ?? body.toolConfig ?? "").match(/"name":"([^"]+)"/)?.[1] ?? "get_weather";
}

export function hasToolResult(body: Record<string, unknown>): boolean {
  return /"tool_result"|"role":"tool"|"functionResponse"|"toolResult"|"function_call_output"/.test(
    JSON.stringify(body),
  );
}

// OpenAI chat

function chatUsage({ cached }: Call) {
  return {
    prompt_tokens: COUNTS.input,
    completion_tokens: COUNTS.output,
    total_tokens: COUNTS.input + COUNTS.output,
    prompt_tokens_details: { cached_tokens: cached ? COUNTS.cached : 0 },
  };
}

function chat(call: Call) {
  const tool = {
    id: "call_1",
    type: "function",
    function: { name: toolName(call), arguments: JSON.stringify(ARGUMENTS) },
  };
  const message = call.tool
    ? { role: "assistant", content: null, tool_calls: [tool] }
    : { role: "assistant", content: TEXT.join("") };
  return {
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 1,
    model: call.model,
    choices: [{ index: 0, message, finish_reason: call.tool ? "tool_calls" : "stop" }],
    usage: chatUsage(call),
  };
}

function chatStream(call: Call): string[] {
  const wantsUsage = (call.body.stream_options as { include_usage?: boolean } | undefined)?.include_usage === true;
  const chunk = (delta: object, finish: string | null = null): string =>
    data({
      id: "chatcmpl-1",
      object: "chat.completion.chunk",
      created: 1,
      model: call.model,
      choices: [{ index: 0, delta, finish_reason: finish }],
      ...(wantsUsage ? { usage: null } : {}),
    });
  const tool = (part: object): string => chunk({ tool_calls: [{ index: 0, ...part }] });
  const body = call.tool
    ? [
        tool({ id: "call_1", type: "function", function: { name: toolName(call), arguments: "" } }),
        tool({ function: { arguments: JSON.stringify(ARGUMENTS) } }),
      ]
    : TEXT.map((content) => chunk({ content }));
  const usage = wantsUsage
    ? [
        data({
          id: "chatcmpl-1",
          object: "chat.completion.chunk",
          created: 1,
          model: call.model,
          choices: [],
          usage: chatUsage(call),
        }),
      ]
    : [];
  return [
    chunk({ role: "assistant", content: "" }),
    ...body,
    chunk({}, call.tool ? "tool_calls" : "stop"),
    ...usage,
    "data: [DONE]\n\n",
  ];
}

// OpenAI responses

function responses(call: Call, done = true) {
  const output = call.tool
    ? [
        {
          type: "function_call",
          id: "fc_1",
          call_id: "call_1",
          name: toolName(call),
          arguments: JSON.stringify(ARGUMENTS),
          status: "completed",
        },
      ]
    : [
        {
          type: "message",
          id: "msg_1",
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: TEXT.join(""), annotations: [] }],
        },
      ];
  const usage = {
    input_tokens: COUNTS.input,
    input_tokens_details: { cached_tokens: call.cached ? COUNTS.cached : 0 },
    output_tokens: COUNTS.output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: COUNTS.input + COUNTS.output,
  };
  return {
    id: "resp_1",
    object: "response",
    created_at: 1,
    status: done ? "completed" : "in_progress",
    model: call.model,
    output: done ? output : [],
    usage: done ? usage : null,
  };
}

function responsesStream(call: Call): string[] {
  const place = { item_id: "msg_1", output_index: 0, content_index: 0 };
  const item = { type: "message", id: "msg_1", role: "assistant", status: "in_progress", content: [] };
  return [
    event("response.created", { response: responses(call, false) }),
    event("response.output_item.added", { output_index: 0, item }),
    event("response.content_part.added", { ...place, part: { type: "output_text", text: "", annotations: [] } }),
    ...TEXT.map((delta) => event("response.output_text.delta", { ...place, delta })),
    event("response.output_text.done", { ...place, text: TEXT.join("") }),
    event("response.output_item.done", { output_index: 0, item: responses(call).output[0] }),
    event("response.completed", { response: responses(call) }),
  ];
}

// Anthropic

function messageUsage({ cached }: Call, output: number) {
  return cached
    ? {
        input_tokens: COUNTS.input - COUNTS.cached - COUNTS.written,
        cache_read_input_tokens: COUNTS.cached,
        cache_creation_input_tokens: COUNTS.written,
        output_tokens: output,
      }
    : {
        input_tokens: COUNTS.input,
        cache_read_input_tokens: null,
        cache_creation_input_tokens: null,
        output_tokens: output,
      };
}

function message(call: Call) {
  const content = call.tool
    ? [{ type: "tool_use", id: "toolu_1", name: toolName(call), input: ARGUMENTS }]
    : [{ type: "text", text: TEXT.join("") }];
  return {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: call.model,
    content,
    stop_reason: call.tool ? "tool_use" : "end_turn",
    stop_sequence: null,
    usage: messageUsage(call, COUNTS.output),
  };
}

function messageStream(call: Call): string[] {
  const start = { ...message(call), content: [], stop_reason: null, usage: messageUsage(call, 1) };
  const block = call.tool
    ? { type: "tool_use", id: "toolu_1", name: toolName(call), input: {} }
    : { type: "text", text: "" };
  const deltas = call.tool
    ? [{ type: "input_json_delta", partial_json: JSON.stringify(ARGUMENTS) }]
    : TEXT.map((text) => ({ type: "text_delta", text }));
  return [
    event("message_start", { message: start }),
    event("content_block_start", { index: 0, content_block: block }),
    event("ping", {}),
    ...deltas.map((delta) => event("content_block_delta", { index: 0, delta })),
    event("content_block_stop", { index: 0 }),
    event("message_delta", {
      delta: { stop_reason: call.tool ? "tool_use" : "end_turn", stop_sequence: null },
      usage: { output_tokens: COUNTS.output },
    }),
    event("message_stop", {}),
  ];
}

/** An event of Anthropic's as Bedrock's `invoke-with-response-stream` sends it. */
function wrapped(event: string): Buffer {
  const json = event.slice(event.indexOf("data: ") + "data: ".length).trim();
  return encodeEventStreamMessage("chunk", { bytes: Buffer.from(json).toString("base64") });
}

// Gemini

function gemini(call: Call, text: string, last = true) {
  const part = call.tool ? { functionCall: { name: toolName(call), args: ARGUMENTS } } : { text };
  const usageMetadata = {
    promptTokenCount: COUNTS.input,
    ...(call.cached ? { cachedContentTokenCount: COUNTS.cached } : {}),
    ...(last
      ? { candidatesTokenCount: COUNTS.output, totalTokenCount: COUNTS.input + COUNTS.output }
      : { totalTokenCount: COUNTS.input }),
  };
  return {
    responseId: "r1",
    modelVersion: call.model,
    candidates: [{ index: 0, content: { role: "model", parts: [part] }, ...(last ? { finishReason: "STOP" } : {}) }],
    usageMetadata,
  };
}

function geminiStream(call: Call): string[] {
  return call.tool ? [data(gemini(call, ""))] : TEXT.map((text, i) => data(gemini(call, text, i === TEXT.length - 1)));
}

// Bedrock

function converseUsage({ cached }: Call) {
  return cached
    ? {
        inputTokens: COUNTS.input - COUNTS.cached - COUNTS.written,
        outputTokens: COUNTS.output,
        totalTokens: COUNTS.input + COUNTS.output,
        cacheReadInputTokens: COUNTS.cached,
        cacheWriteInputTokens: COUNTS.written,
      }
    : { inputTokens: COUNTS.input, outputTokens: COUNTS.output, totalTokens: COUNTS.input + COUNTS.output };
}

function converse(call: Call) {
  const content = call.tool
    ? [{ toolUse: { toolUseId: "t1", name: toolName(call), input: ARGUMENTS } }]
    : [{ text: TEXT.join("") }];
  return {
    output: { message: { role: "assistant", content } },
    stopReason: call.tool ? "tool_use" : "end_turn",
    usage: converseUsage(call),
    metrics: { latencyMs: 1 },
  };
}

function converseStream(call: Call): Buffer[] {
  const start: Buffer[] = call.tool
    ? [
        encodeEventStreamMessage("contentBlockStart", {
          contentBlockIndex: 0,
          start: { toolUse: { toolUseId: "t1", name: toolName(call) } },
        }),
      ]
    : [];
  const deltas = call.tool ? [{ toolUse: { input: JSON.stringify(ARGUMENTS) } }] : TEXT.map((text) => ({ text }));
  return [
    encodeEventStreamMessage("messageStart", { role: "assistant" }),
    ...start,
    ...deltas.map((delta) => encodeEventStreamMessage("contentBlockDelta", { contentBlockIndex: 0, delta })),
    encodeEventStreamMessage("contentBlockStop", { contentBlockIndex: 0 }),
    encodeEventStreamMessage("messageStop", { stopReason: call.tool ? "tool_use" : "end_turn" }),
    encodeEventStreamMessage("metadata", { usage: converseUsage(call), metrics: { latencyMs: 1 } }),
  ];
}
