/**
 * A small MCP client for tests that shows statuses, headers, event IDs and raw text, which the official SDKs hide.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { createSseParser, type SseEvent } from "../../../src/http/sse.ts";

const EVENT_STREAM = peerInput("mcp-server/event-stream");

export const LEGACY_HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The events of a stream that ended. */
  readonly events: readonly SseEvent[];
  /** The messages in them, parsed. */
  readonly messages: readonly Json[];
  /** The last message, or the body if it is JSON. */
  readonly message: Json;
}

// biome-ignore lint/suspicious/noExplicitAny: tests read foreign JSON freely
export type Json = any;

export interface RawClient {
  readonly url: string;
  sessionId: string | undefined;
  version: string;
  post(body: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** Resolves with the head; events arrive as they come. */
  stream(body: unknown, headers?: Record<string, string>): Promise<OpenStream>;
  listen(headers?: Record<string, string>): Promise<OpenStream>;
  request(method: string, params?: unknown, id?: unknown): Promise<Json>;
  call(tool: string, args?: unknown, meta?: unknown): Promise<Json>;
  initialize(params?: Record<string, unknown>): Promise<Answer>;
  delete(): Promise<number>;
}

export interface OpenStream {
  readonly status: number;
  readonly headers: Headers;
  readonly events: SseEvent[];
  readonly comments: () => number;
  /** The next event that fits, also one that already came and was not taken. */
  next(fits?: (message: Json, event: SseEvent) => boolean): Promise<{ message: Json; event: SseEvent }>;
  readonly ended: Promise<void>;
  close(): void;
}

export function rawClient(url: string): RawClient {
  let nextId = 1;
  const client: RawClient = {
    url,
    sessionId: undefined,
    version: "2025-11-25",
    async post(body, headers = {}) {
      const response = await fetch(url, {
        method: "POST",
        headers: { ...sessionHeaders(), ...headers },
        body: asBody(body),
      });
      return readAnswer(response);
    },
    stream: (body, headers = {}) =>
      openStream(url, { method: "POST", headers: { ...sessionHeaders(), ...headers }, body: asBody(body) }),
    listen: (headers = {}) => openStream(url, { method: "GET", headers: { ...sessionHeaders(), ...headers } }),
    async request(method, params = {}, id = nextId++) {
      const { message } = await client.post({ jsonrpc: "2.0", id, method, params });
      return message;
    },
    call: (tool, args = {}, meta) =>
      client.request("tools/call", { name: tool, arguments: args, ...(meta === undefined ? {} : { _meta: meta }) }),
    async initialize(params = {}) {
      const answer = await client.post({
        jsonrpc: "2.0",
        id: "init",
        method: "initialize",
        params: {
          protocolVersion: client.version,
          capabilities: {},
          clientInfo: { name: "test", version: "1" },
          ...params,
        },
      });
      client.sessionId = answer.headers.get("mcp-session-id") ?? undefined;
      if (client.sessionId !== undefined) await client.post({ jsonrpc: "2.0", method: "notifications/initialized" });
      return answer;
    },
    async delete() {
      const response = await fetch(url, { method: "DELETE", headers: sessionHeaders() });
      await response.arrayBuffer();
      return response.status;
    },
  };
  const sessionHeaders = (): Record<string, string> => ({
    ...LEGACY_HEADERS,
    ...(client.sessionId === undefined
      ? {}
      : { "mcp-session-id": client.sessionId, "mcp-protocol-version": client.version }),
  });
  return client;
}

export async function readAnswer(response: Response): Promise<Answer> {
  const bytes = Buffer.from(await response.arrayBuffer());
  const text = bytes.toString();
  const events: SseEvent[] = [];
  if (response.headers.get("content-type")?.startsWith("text/event-stream"))
    createSseParser(EVENT_STREAM, (event) => events.push(event)).push(bytes);
  const messages = events.filter((event) => event.data !== "").map((event) => JSON.parse(event.data) as Json);
  const message = messages.at(-1) ?? (text.startsWith("{") ? JSON.parse(text) : undefined);
  return { status: response.status, headers: response.headers, text, events, messages, message };
}

export async function openStream(url: string, init: RequestInit): Promise<OpenStream> {
  const abort = new AbortController();
  const response = await fetch(url, { ...init, signal: abort.signal });
  const events: SseEvent[] = [];
  const taken = new Set<SseEvent>();
  const waiting = new Set<() => void>();
  let comments = 0;
  let isOver = false;
  const parser = createSseParser(EVENT_STREAM, (event) => {
    events.push(event);
    for (const wake of [...waiting]) wake();
  });
  const reader = response.body?.getReader();
  const ended = (async () => {
    try {
      for (;;) {
        const chunk = await reader?.read();
        if (chunk === undefined || chunk.done) break;
        comments += Buffer.from(chunk.value)
          .toString()
          .split("\n")
          .filter((line) => line.startsWith(":")).length;
        parser.push(Buffer.from(chunk.value));
      }
    } catch {
      // The test closed it, or the server cut it: both end the stream.
    }
    isOver = true;
    for (const wake of [...waiting]) wake();
  })();
  return {
    status: response.status,
    headers: response.headers,
    events,
    comments: () => comments,
    next: (fits = () => true) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          for (const event of events) {
            if (taken.has(event) || event.data === "") continue;
            const message = JSON.parse(event.data) as Json;
            if (!fits(message, event)) continue;
            taken.add(event);
            waiting.delete(look);
            resolve({ message, event });
            return;
          }
          if (!isOver) return;
          waiting.delete(look);
          reject(new Error("the stream ended without such an event"));
        };
        waiting.add(look);
        look();
      }),
    ended,
    close: () => abort.abort(),
  };
}

function asBody(body: unknown): string {
  return typeof body === "string" ? body : JSON.stringify(body);
}
