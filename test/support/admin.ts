/**
 * Calls an admin endpoint without a server: the answer as data, or the stream that it writes.
 */
import type { AdminAnswer, AdminEndpoint, AdminRequest } from "../../src/admin/server/endpoint.ts";

export async function askAdmin(
  endpoint: AdminEndpoint,
  query = "",
  options: { readonly method?: "GET" | "POST"; readonly body?: string } = {},
): Promise<{ status: number; text: string; json: () => Record<string, unknown>; answer: AdminAnswer }> {
  const method = options.method ?? "GET";
  const handler = endpoint[method];
  if (!handler) throw new Error(`${endpoint.path} takes no ${method}`);
  const request: AdminRequest = {
    method,
    path: endpoint.path,
    query: new URLSearchParams(query),
    body: () => Promise.resolve(Buffer.from(options.body ?? "")),
  };
  const answer = await handler(request);
  const text = "body" in answer ? answer.body.toString() : "";
  return { status: answer.status, text, answer, json: () => JSON.parse(text) as Record<string, unknown> };
}

export interface ReadStream {
  /** What was written so far. */
  text(): string;
  bytes(): Buffer;
  readonly ended: Promise<void>;
  /** The reader goes away. */
  leave(): void;
  /** From now on nothing that is written gets out. */
  stall(): void;
}

export function readStream(answer: AdminAnswer): ReadStream {
  if (!("stream" in answer)) throw new Error(`not a stream: ${answer.status}`);
  const chunks: Buffer[] = [];
  let stalled = false;
  let buffered = 0;
  let close: (() => void) | undefined;
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  answer.stream({
    write(chunk) {
      const bytes = Buffer.from(chunk as string);
      if (stalled) buffered += bytes.length;
      else chunks.push(bytes);
      return !stalled;
    },
    end: () => end(),
    onClose(callback) {
      close = callback;
    },
    bufferedBytes: () => buffered,
  });
  return {
    text: () => Buffer.concat(chunks).toString(),
    bytes: () => Buffer.concat(chunks),
    ended,
    leave: () => close?.(),
    stall() {
      stalled = true;
    },
  };
}
