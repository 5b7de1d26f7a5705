/**
 * Simulates all providers: one port responds for every host, with and without TLS, in the API of the requested path. Each
 * response names the host and the model, so that a test can identify the provider.
 */
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { peerInput } from "../../../../src/base/peer-inputs.ts";
import { readMembers } from "../../../../src/json/read-json.ts";
import { encodeEventStreamMessage } from "../../llm/event-stream.ts";
import { certificates } from "../../tls/certificates.ts";

const BODY = peerInput("llm-provider/response");

export interface Received {
  readonly origin: string;
  /** With the query. */
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Readonly<Record<string, unknown>>;
}

export type Failure = "server" | "rate" | "context" | "content";

export interface Providers {
  readonly port: number;
  readonly received: Received[];
  /** Models that reject calls. */
  failing: ReadonlyMap<string, Failure>;
  close(): Promise<void>;
}

const FAILURES: Readonly<Record<Failure, readonly [status: number, code: string, message: string]>> = {
  server: [500, "internal", "the server had an error"],
  rate: [429, "rate_limit_exceeded", "Rate limit reached"],
  context: [400, "context_length_exceeded", "This model's maximum context length is 8192 tokens. Reduce the length."],
  content: [400, "content_filter", "The response was filtered due to the prompt triggering the content policy"],
};

export async function startProviders(): Promise<Providers> {
  const sockets = new Set<Socket>();
  const listener = (scheme: string) => (request: IncomingMessage, response: ServerResponse) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const body = readMembers(BODY, text) ?? {};
      const path = request.url ?? "";
      if (request.method !== "POST" || path === "/api/show") {
        response.writeHead(404).end();
        return;
      }
      const origin = `${scheme}://${request.headers.host ?? ""}`;
      providers.received.push({ origin, path, headers: request.headers, body });
      answer(response, path, body, new URL(origin).host, providers.failing.get(modelOf(path, body)));
    });
  };
  const plain = createHttpServer(listener("http"));
  const secure = createHttpsServer(certificates.server, listener("https"));
  const front = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy()).on("close", () => sockets.delete(socket));
    socket.once("data", (bytes) => {
      socket.pause();
      socket.unshift(bytes);
      // A TLS connection begins with a handshake record.
      (bytes[0] === 22 ? secure : plain).emit("connection", socket);
      process.nextTick(() => socket.resume());
    });
  });
  await new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve));
  const providers: Providers = {
    port: (front.address() as AddressInfo).port,
    received: [],
    failing: new Map(),
    close: () =>
      new Promise((resolve) => {
        front.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
  return providers;
}

export function modelOf(path: string, body: Readonly<Record<string, unknown>>): string {
  const [, inPath] = /\/(?:deployments|models|model)\/([^/:?]+(?:%3A\d+|:\d+)?)/.exec(path) ?? [];
  return decodeURIComponent(inPath ?? String(body.model ?? ""));
}

function answer(
  response: ServerResponse,
  path: string,
  body: Readonly<Record<string, unknown>>,
  host: string,
  failure: Failure | undefined,
): void {
  if (failure !== undefined) {
    const [status, code, message] = FAILURES[failure];
    const error = { message, type: "invalid_request_error", code };
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ type: "error", error }));
    return;
  }
  const text = `from ${host} ${modelOf(path, body)}`;
  const isStream = body.stream === true || /stream/i.test(path);
  const [whole, events] = shape(path, text);
  if (!isStream) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(whole));
  else {
    const type = path.includes("/converse")
      ? "application/vnd.amazon.eventstream"
      : isOllama(path)
        ? "application/x-ndjson"
        : "text/event-stream";
    response.writeHead(200, { "content-type": type });
    for (const event of events) response.write(event);
    response.end();
  }
}

const IN = 11;
const OUT = 7;
const data = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;

function isOllama(path: string): boolean {
  return /^\/api\/(?:chat|generate)$/.test(path);
}

/** The complete response of an API, and its stream. */
function shape(path: string, text: string): [whole: unknown, events: (string | Buffer)[]] {
  if (path.includes("/embeddings")) return [embedding(), []];
  if (/\/messages(?:\?|$)/.test(path)) return message(text);
  if (path.includes("enerateContent")) return gemini(text);
  if (path.includes("/converse")) return converse(text);
  if (isOllama(path)) return ollama(text);
  if (/\/responses(?:\?|$)/.test(path)) return responses(text);
  return chat(text);
}

function embedding(): unknown {
  return {
    object: "list",
    model: "e",
    data: [{ object: "embedding", index: 0, embedding: [0.25, 0.5] }],
    usage: { prompt_tokens: IN, total_tokens: IN },
  };
}

function chat(text: string): [unknown, string[]] {
  const usage = { prompt_tokens: IN, completion_tokens: OUT, total_tokens: IN + OUT };
  const common = { id: "c", created: 1, model: "m", service_tier: "default" };
  const chunk = (delta: unknown, end: string | null, more: object = {}): string =>
    data({
      ...common,
      object: "chat.completion.chunk",
      choices: [{ index: 0, delta, finish_reason: end }],
      ...more,
    });
  const choice = { index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" };
  return [
    { ...common, object: "chat.completion", choices: [choice], usage },
    [
      chunk({ role: "assistant", content: text }, null),
      chunk({}, "stop"),
      data({ ...common, object: "chat.completion.chunk", choices: [], usage }),
      "data: [DONE]\n\n",
    ],
  ];
}

function message(text: string): [unknown, string[]] {
  const event = (type: string, value: object): string => `event: ${type}\n${data({ type, ...value })}`;
  const whole = {
    id: "msg",
    type: "message",
    role: "assistant",
    model: "m",
    content: [{ type: "text", text }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: { input_tokens: IN, output_tokens: OUT },
  };
  return [
    whole,
    [
      event("message_start", { message: { ...whole, content: [], stop_reason: null } }),
      event("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
      event("content_block_delta", { index: 0, delta: { type: "text_delta", text } }),
      event("content_block_stop", { index: 0 }),
      event("message_delta", {
        delta: { stop_reason: "end_turn", stop_sequence: null },
        usage: { output_tokens: OUT },
      }),
      event("message_stop", {}),
    ],
  ];
}

function gemini(text: string): [unknown, string[]] {
  const whole = {
    candidates: [{ content: { role: "model", parts: [{ text }] }, finishReason: "STOP", index: 0 }],
    usageMetadata: { promptTokenCount: IN, candidatesTokenCount: OUT, totalTokenCount: IN + OUT },
    modelVersion: "m",
    responseId: "r",
  };
  return [whole, [data(whole)]];
}

function converse(text: string): [unknown, Buffer[]] {
  const usage = { inputTokens: IN, outputTokens: OUT, totalTokens: IN + OUT };
  const event = encodeEventStreamMessage;
  return [
    {
      output: { message: { role: "assistant", content: [{ text }] } },
      stopReason: "end_turn",
      usage,
      metrics: { latencyMs: 1 },
    },
    [
      event("messageStart", { role: "assistant" }),
      event("contentBlockDelta", { contentBlockIndex: 0, delta: { text } }),
      event("contentBlockStop", { contentBlockIndex: 0 }),
      event("messageStop", { stopReason: "end_turn" }),
      event("metadata", { usage, metrics: { latencyMs: 1 } }),
    ],
  ];
}

/** Ollama's own API, which LiteLLM uses. */
function ollama(text: string): [unknown, string[]] {
  const whole = {
    model: "m",
    created_at: "2026-01-01T00:00:00Z",
    message: { role: "assistant", content: text },
    response: text,
    done: true,
    done_reason: "stop",
    prompt_eval_count: IN,
    eval_count: OUT,
  };
  return [
    whole,
    [
      `${JSON.stringify({ ...whole, done: false, done_reason: undefined })}\n`,
      `${JSON.stringify({ ...whole, message: { role: "assistant", content: "" }, response: "" })}\n`,
    ],
  ];
}

function responses(text: string): [unknown, string[]] {
  const item = {
    id: "m1",
    type: "message",
    role: "assistant",
    status: "completed",
    content: [{ type: "output_text", text, annotations: [] }],
  };
  const whole = {
    id: "resp_1",
    object: "response",
    created_at: 1,
    status: "completed",
    model: "m",
    output: [item],
    parallel_tool_calls: true,
    tool_choice: "auto",
    tools: [],
    usage: {
      input_tokens: IN,
      output_tokens: OUT,
      total_tokens: IN + OUT,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens_details: { reasoning_tokens: 0 },
    },
  };
  const event = (type: string, value: object): string =>
    `event: ${type}\n${data({ type, sequence_number: 1, ...value })}`;
  return [
    whole,
    [
      event("response.created", { response: { ...whole, status: "in_progress", output: [], usage: null } }),
      event("response.output_item.added", { output_index: 0, item: { ...item, content: [], status: "in_progress" } }),
      event("response.output_text.delta", { item_id: "m1", output_index: 0, content_index: 0, delta: text }),
      event("response.output_item.done", { output_index: 0, item }),
      event("response.completed", { response: whole }),
    ],
  ];
}
