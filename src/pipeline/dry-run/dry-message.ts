/**
 * The bodies of described requests: an MCP message as a client of the modern era sends it, which needs no session, and a
 * minimal LLM call.
 */
import { CLIENT_CAPABILITIES, LATEST_LEGACY, LATEST_MODERN, PROTOCOL_VERSION } from "../../mcp/protocol/era.ts";
import { MIRRORED, mirrorHeader } from "../../mcp/protocol/mirror-headers.ts";

export interface DryMessage {
  /** Default: `tools/call` with a tool, `prompts/get` with a prompt, `resources/read` with a resource, else `tools/list`. */
  readonly method?: string | undefined;
  readonly tool?: string | undefined;
  readonly arguments?: Readonly<Record<string, unknown>> | undefined;
  readonly prompt?: string | undefined;
  /** A URI. */
  readonly resource?: string | undefined;
}

export interface WrittenMessage {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export function mcpMessage(message: DryMessage): WrittenMessage {
  const method = message.method ?? defaultMethod(message);
  const accept = "application/json, text/event-stream";
  if (method === "initialize") {
    const clientInfo = { name: "dry-run", version: "1" };
    const params = { protocolVersion: LATEST_LEGACY, capabilities: {}, clientInfo };
    return { headers: { accept }, body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }) };
  }
  const name = message.tool ?? message.prompt ?? message.resource;
  const params = {
    _meta: { [PROTOCOL_VERSION]: LATEST_MODERN, [CLIENT_CAPABILITIES]: {} },
    ...(message.resource === undefined ? {} : { uri: message.resource }),
    ...(message.resource === undefined && name !== undefined ? { name } : {}),
    ...(message.tool === undefined ? {} : { arguments: message.arguments ?? {} }),
  };
  return {
    headers: {
      accept,
      "mcp-protocol-version": LATEST_MODERN,
      "mcp-method": method,
      ...(MIRRORED.has(method) && name !== undefined ? { "mcp-name": mirrorHeader(name) } : {}),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  };
}

export function llmBody(model: string): string {
  return JSON.stringify({ model, max_tokens: 1, messages: [{ role: "user", content: "dry run" }] });
}

function defaultMethod({ tool, prompt, resource }: DryMessage): string {
  if (tool !== undefined) return "tools/call";
  if (prompt !== undefined) return "prompts/get";
  return resource === undefined ? "tools/list" : "resources/read";
}
