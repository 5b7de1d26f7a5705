/**
 * Sends requests of the modern protocol version, with the envelope in the body and its copy in the headers, for tests
 * of raw messages.
 */
import { type Answer, type Json, type OpenStream, openStream, readAnswer } from "./client.ts";

export const MODERN = "2026-07-28";

export interface ModernRequest {
  readonly body: string;
  readonly headers: Record<string, string>;
}

let nextId = 1;

export function modernRequest(
  method: string,
  params: Record<string, unknown> = {},
  options: { id?: unknown; capabilities?: object; meta?: object; headers?: Record<string, string> } = {},
): ModernRequest {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": { name: "modern-test", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": options.capabilities ?? {},
    ...options.meta,
  };
  const name = params.name ?? params.uri;
  return {
    body: JSON.stringify({ jsonrpc: "2.0", id: options.id ?? nextId++, method, params: { ...params, _meta } }),
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": MODERN,
      "mcp-method": method,
      ...(typeof name === "string" ? { "mcp-name": name } : {}),
      ...options.headers,
    },
  };
}

export async function modernPost(
  url: string,
  method: string,
  params?: Record<string, unknown>,
  options?: Parameters<typeof modernRequest>[2],
): Promise<Answer> {
  const { body, headers } = modernRequest(method, params, options);
  return readAnswer(await fetch(url, { method: "POST", headers, body }));
}

export function modernStream(
  url: string,
  method: string,
  params?: Record<string, unknown>,
  options?: Parameters<typeof modernRequest>[2],
): Promise<OpenStream> {
  const { body, headers } = modernRequest(method, params, options);
  return openStream(url, { method: "POST", headers, body });
}

/** A tool call that must succeed; its first text. */
export async function modernCall(
  url: string,
  name: string,
  args: object = {},
  options?: Parameters<typeof modernRequest>[2],
): Promise<string> {
  const { message } = await modernPost(url, "tools/call", { name, arguments: args }, options);
  const result: Json = message.result;
  return result.content[0].text as string;
}
