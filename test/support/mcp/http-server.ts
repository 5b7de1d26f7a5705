/**
 * A remote MCP server for tests, in this process: legacy streamable HTTP or HTTP+SSE. It records what it receives and
 * can drop its sessions.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface RemoteFixture {
  readonly url: string;
  /** Every request, in order. */
  readonly received: { method: string; url: string; headers: IncomingMessage["headers"]; body: string }[];
  readonly sessions: Set<string>;
  /** As after a restart: no session is known any more. */
  forget(): void;
  /** Sends a message to every general stream. */
  broadcast(message: object): void;
  close(): Promise<void>;
}

export async function startRemote(
  kind: "http" | "sse",
  options: { json?: boolean; endpoint?: string; refuses?: (req: IncomingMessage, res: ServerResponse) => boolean } = {},
): Promise<RemoteFixture> {
  const sessions = new Set<string>();
  const streams = new Map<string, ServerResponse>();
  const received: RemoteFixture["received"] = [];
  let nextSession = 1;

  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      received.push({ method: req.method ?? "", url: req.url ?? "", headers: req.headers, body });
      if (options.refuses?.(req, res)) return;
      if (kind === "http") streamable(req, res, body);
      else oldPair(req, res, body);
    });
  });

  function streamable(req: IncomingMessage, res: ServerResponse, body: string): void {
    const id = req.headers["mcp-session-id"] as string | undefined;
    const message = body === "" ? undefined : JSON.parse(body);
    if (message?.method === "initialize") {
      const session = `remote-${nextSession++}`;
      sessions.add(session);
      res.setHeader("mcp-session-id", session);
    } else if (message?.method === "server/discover" || id === undefined) {
      res.writeHead(400).end("no session");
      return;
    } else if (!sessions.has(id)) {
      res.writeHead(404).end("session not found");
      return;
    }
    if (req.method === "DELETE") {
      sessions.delete(id ?? "");
      res.writeHead(200).end();
    } else if (req.method === "GET") {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(": open\n\n");
      streams.set(id ?? "", res);
    } else if (message.id === undefined || message.method === undefined) res.writeHead(202).end();
    else answer(message, res);
  }

  function answer(
    message: { id: unknown; method: string; params?: Record<string, unknown> },
    res: ServerResponse,
  ): void {
    const reply = replyTo(message);
    if (options.json) {
      res.writeHead(200, { "content-type": "application/json" });
      res.end(JSON.stringify(reply, null, 2));
      return;
    }
    res.writeHead(200, { "content-type": "text/event-stream" });
    const token = (message.params?._meta as { progressToken?: unknown } | undefined)?.progressToken;
    if (token !== undefined)
      res.write(
        `event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", method: "notifications/progress", params: { progressToken: token, progress: 1 } })}\n\n`,
      );
    res.end(`event: message\ndata: ${JSON.stringify(reply)}\n\n`);
  }

  function oldPair(req: IncomingMessage, res: ServerResponse, body: string): void {
    if (req.method === "GET") {
      const session = `sse-${nextSession++}`;
      sessions.add(session);
      streams.set(session, res);
      res.on("close", () => sessions.delete(session));
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(`event: endpoint\ndata: ${options.endpoint ?? "/messages"}?session=${session}\n\n`);
      return;
    }
    const session = new URL(req.url ?? "", "http://x").searchParams.get("session") ?? "";
    res.writeHead(202).end("Accepted");
    const message = JSON.parse(body);
    if (message.id !== undefined && message.method !== undefined)
      streams.get(session)?.write(`event: message\ndata: ${JSON.stringify(replyTo(message))}\n\n`);
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/${kind === "http" ? "mcp" : "sse"}`,
    received,
    sessions,
    forget: () => sessions.clear(),
    broadcast: (message) => {
      for (const stream of streams.values()) stream.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function replyTo({
  id,
  method,
  params = {},
}: {
  id: unknown;
  method: string;
  params?: Record<string, unknown>;
}): object {
  const reply = (result: object): object => ({ jsonrpc: "2.0", id, result });
  switch (method) {
    case "initialize":
      return reply({
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "remote", version: "1" },
      });
    case "tools/list":
      return reply({ tools: [{ name: "echo", inputSchema: { type: "object" } }] });
    case "tools/call":
      return reply({
        content: [{ type: "text", text: String((params.arguments as { message?: unknown } | undefined)?.message) }],
      });
    case "ping":
      return reply({});
    default:
      return { jsonrpc: "2.0", id, error: { code: -32601, message: `Method not found: ${method}` } };
  }
}
