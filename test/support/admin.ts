/**
 * Calls an admin endpoint without a server: returns the response as data, or reads its stream.
 */
import type { AdminEndpoint, AdminRequest, AdminResponse } from "../../src/admin/server/endpoint.ts";

export async function callAdmin(
  endpoint: AdminEndpoint,
  query = "",
  options: { readonly method?: "GET" | "POST"; readonly body?: string } = {},
): Promise<{ status: number; text: string; json: () => Record<string, unknown>; response: AdminResponse }> {
  const method = options.method ?? "GET";
  const handler = endpoint[method];
  if (!handler) throw new Error(`${endpoint.path} takes no ${method}`);
  const request: AdminRequest = {
    method,
    path: endpoint.path,
    query: new URLSearchParams(query),
    body: () => Promise.resolve(Buffer.from(options.body ?? "")),
  };
  const response = await handler(request);
  const text = "body" in response ? response.body.toString() : "";
  return { status: response.status, text, response, json: () => JSON.parse(text) as Record<string, unknown> };
}

export interface ReadStream {
  /** The output written so far. */
  text(): string;
  bytes(): Buffer;
  readonly ended: Promise<void>;
  /** Simulates a disconnect of the reader. */
  leave(): void;
  /** Simulates a reader that stops reading. */
  stall(): void;
}

export function readStream(response: AdminResponse): ReadStream {
  if (!("stream" in response)) throw new Error(`not a stream: ${response.status}`);
  const chunks: Buffer[] = [];
  let stalled = false;
  let buffered = 0;
  let close: (() => void) | undefined;
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  response.stream({
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
