/**
 * Sends a chat request through the gateway in the OpenAI format and streams the response.
 */
import { callListener, createEventReader, type ListenerResponse } from "../../data/call.ts";
import type { Endpoint } from "../../data/endpoints.ts";
import { readRequest } from "../../data/requests.ts";

export interface ChatMessage {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

export interface ChatSettings {
  readonly model: string;
  readonly temperature: number | undefined;
  readonly maxTokens: number | undefined;
  readonly credential: Readonly<Record<string, string>>;
}

export interface Turn {
  readonly text: string;
  readonly status: number;
  readonly error?: string;
  readonly requestId: string | undefined;
  readonly usage?: Usage;
  readonly cost?: number;
  readonly firstTokenMs: number | undefined;
  readonly totalMs: number;
  readonly limit?: { readonly limit: string; readonly remaining: string; readonly reset: string };
}

export interface Usage {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string };
    readonly message?: { readonly content?: string };
  }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number };
  };
  readonly error?: { readonly message?: string } | string;
}

/** Returns the path that an OpenAI client would use for a chat on this route. */
export function chatPath({ path }: Endpoint): string {
  if (path.endsWith("/chat/completions")) return path;
  const base = path.replace(/\/$/, "");
  return base.endsWith("/v1") ? `${base}/chat/completions` : `${base}/v1/chat/completions`;
}

export async function chat(
  endpoint: Endpoint,
  messages: readonly ChatMessage[],
  settings: ChatSettings,
  onText: (text: string) => void,
  signal: AbortSignal,
): Promise<Turn> {
  const startedMs = performance.now();
  let firstTokenMs: number | undefined;
  let text = "";
  let usage: Usage | undefined;
  let isStream = false;
  const take = (chunk: Chunk): void => {
    const piece = chunk.choices?.[0]?.delta?.content ?? chunk.choices?.[0]?.message?.content ?? "";
    if (piece !== "") {
      firstTokenMs ??= performance.now() - startedMs;
      text += piece;
      onText(text);
    }
    if (chunk.usage) usage = usageOf(chunk.usage);
  };
  const read = createEventReader((data) => {
    const chunk = parse(data);
    if (chunk) take(chunk);
  });
  const response = await callListener(
    {
      listener: endpoint.listener,
      method: "POST",
      path: chatPath(endpoint),
      headers: {
        "content-type": "application/json",
        ...(endpoint.host === undefined ? {} : { host: endpoint.host }),
        ...settings.credential,
      },
      body: JSON.stringify({
        model: settings.model,
        messages,
        stream: true,
        stream_options: { include_usage: true },
        ...(settings.temperature === undefined ? {} : { temperature: settings.temperature }),
        ...(settings.maxTokens === undefined ? {} : { max_tokens: settings.maxTokens }),
      }),
    },
    {
      signal,
      onHead: (status, headers) => {
        isStream = status === 200 && (headers.get("content-type")?.startsWith("text/event-stream") ?? false);
      },
      onText: (piece) => {
        if (isStream) read(piece);
      },
    },
  );
  const whole = isStream ? undefined : parse(response.text);
  if (whole && response.status === 200) take(whole);
  return {
    text,
    status: response.status,
    requestId: response.headers.get("x-request-id"),
    firstTokenMs,
    totalMs: performance.now() - startedMs,
    ...(usage ? { usage } : {}),
    ...(response.status === 200 ? {} : { error: errorOf(response, whole) }),
    ...limitOf(response),
  };
}

/** The gateway records the cost shortly after the stream has ended. */
export async function costOf(requestId: string | undefined): Promise<number | undefined> {
  if (requestId === undefined) return undefined;
  return (await readRequest(requestId).catch(() => undefined))?.llm?.cost;
}

function limitOf({ headers }: ListenerResponse): Pick<Turn, "limit"> {
  const limit = headers.get("x-ratelimit-limit");
  if (limit === undefined) return {};
  return {
    limit: {
      limit,
      remaining: headers.get("x-ratelimit-remaining") ?? "",
      reset: headers.get("x-ratelimit-reset") ?? "",
    },
  };
}

function usageOf(usage: NonNullable<Chunk["usage"]>): Usage {
  return {
    input: usage.prompt_tokens ?? 0,
    output: usage.completion_tokens ?? 0,
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

function errorOf({ text }: ListenerResponse, body: Chunk | undefined): string {
  const error = body?.error;
  return (typeof error === "object" ? error.message : error) ?? text.slice(0, 500);
}

function parse(text: string): Chunk | undefined {
  try {
    return JSON.parse(text) as Chunk;
  } catch {
    return undefined;
  }
}
