/**
 * A remote MCP server in this process that responds to everything and records the bytes of every message. It has one
 * allowed and one secret tool, prompt and resource.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export const ALLOWED = { tool: "echo", prompt: "greet", resource: "file:///open" };
export const SECRET = { tool: "secret_tool", prompt: "secret_prompt", resource: "file:///secret" };

export interface Recorded {
  readonly body: string;
  readonly headers: IncomingMessage["headers"];
}

export interface RecordingServer {
  readonly url: string;
  readonly received: Recorded[];
  close(): Promise<void>;
}

export async function startRecordingServer(era: "legacy" | "modern"): Promise<RecordingServer> {
  const received: Recorded[] = [];
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks).toString("latin1");
      if (req.method !== "POST") res.writeHead(405).end();
      else {
        received.push({ body: Buffer.from(body, "latin1").toString(), headers: req.headers });
        answer(era, Buffer.from(body, "latin1").toString(), res);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    received,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function answer(era: "legacy" | "modern", body: string, res: ServerResponse): void {
  const message = readLeniently(body);
  if (message.id === undefined) {
    res.writeHead(202).end();
    return;
  }
  const result = resultOf(era, String(message.method), message.params);
  const reply = result
    ? { jsonrpc: "2.0", id: message.id, result }
    : { jsonrpc: "2.0", id: message.id, error: { code: -32601, message: "Method not found" } };
  const headers = message.method === "initialize" ? { "mcp-session-id": "recorded" } : {};
  res.writeHead(200, { "content-type": "application/json", ...headers }).end(JSON.stringify(reply));
}

function readLeniently(body: string): { id?: unknown; method?: unknown; params?: { protocolVersion?: unknown } } {
  try {
    return JSON.parse(body);
  } catch {
    return {};
  }
}

const CAPABILITIES = { tasks: { list: {} }, tools: {}, prompts: {}, resources: { subscribe: true }, completions: {} };

function resultOf(
  era: "legacy" | "modern",
  method: string,
  params?: { protocolVersion?: unknown },
): object | undefined {
  const serverInfo = { name: "recorder", version: "1" };
  switch (method) {
    case "initialize":
      if (era === "modern") return undefined;
      return { protocolVersion: params?.protocolVersion, capabilities: CAPABILITIES, serverInfo };
    case "server/discover":
      if (era === "legacy") return undefined;
      return { supportedVersions: ["2026-07-28"], capabilities: CAPABILITIES, resultType: "complete", serverInfo };
    case "tools/list":
      return { tools: both("tool").map((name) => ({ name, inputSchema: { type: "object" } })) };
    case "prompts/list":
      return { prompts: both("prompt").map((name) => ({ name })) };
    case "resources/list":
      return { resources: both("resource").map((uri) => ({ uri, name: "r" })) };
    case "resources/templates/list":
      return { resourceTemplates: both("resource").map((uriTemplate) => ({ uriTemplate, name: "t" })) };
    default:
      return { content: [{ type: "text", text: "ran" }] };
  }
}

function both(kind: keyof typeof ALLOWED): string[] {
  return [ALLOWED[kind], SECRET[kind]];
}
