/**
 * A remote MCP server whose tools a test can change while it runs. It returns and records what it receives.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Json } from "./client.ts";

export interface ToolsServer {
  readonly url: string;
  tools: Json[];
  /** Answers of single tools; others answer with their arguments. */
  readonly results: Record<string, Json>;
  /** Parameters of every `tools/call`. */
  readonly calls: Json[];
  /** How often the tools were listed. */
  listed: number;
  /** Headers of every request. */
  readonly headers: Record<string, unknown>[];
  close(): Promise<void>;
}

/** Items per page; 0: all on one. */
export async function startToolsServer(tools: Json[], pageSize = 0): Promise<ToolsServer> {
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      fixture.headers.push(req.headers);
      const message = chunks.length === 0 ? undefined : JSON.parse(Buffer.concat(chunks).toString());
      if (message === undefined) res.writeHead(405).end();
      else if (message.id === undefined) res.writeHead(202).end();
      else if (message.params?.name === "never" && message.method === "tools/call") fixture.calls.push(message.params);
      else {
        res.writeHead(200, { "content-type": "application/json" });
        res.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, ...answer(message.method, message.params ?? {}) }));
      }
    });
  });

  function answer(method: string, params: Json): Json {
    switch (method) {
      case "initialize":
        return {
          result: {
            protocolVersion: params.protocolVersion,
            capabilities: { tools: { listChanged: true } },
            serverInfo: { name: "tools", version: "1" },
          },
        };
      case "tools/list": {
        fixture.listed += 1;
        const from = Number(params.cursor ?? 0);
        const to = pageSize === 0 ? fixture.tools.length : from + pageSize;
        const next = to < fixture.tools.length ? { nextCursor: String(to) } : {};
        return { result: { tools: fixture.tools.slice(from, to), ...next } };
      }
      case "tools/call": {
        fixture.calls.push(params);
        const text = JSON.stringify(params.arguments ?? null);
        return { result: fixture.results[params.name] ?? { content: [{ type: "text", text }] } };
      }
      case "tasks/get":
      case "tasks/result":
        return { result: fixture.results[params.taskId] ?? {} };
      default:
        return { error: { code: -32601, message: `Method not found: ${method}` } };
    }
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const fixture: ToolsServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    tools,
    results: {},
    calls: [],
    listed: 0,
    headers: [],
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return fixture;
}
