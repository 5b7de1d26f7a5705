/**
 * A remote MCP server quotes what it received in the bodies of its errors. Clients receive the error, and the log has
 * it, without the configured credentials: over each transport, with each status, and at each step of a session.
 */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { gatewayFor } from "../support/scenario.ts";

const SECRETS = ["sk-4f9d2c81b7aa", "tok 77 b+c", "q-3e8d91c0f2"];
const STATUSES = [302, 400, 401, 403, 404, 418, 429, 500, 503];

interface Message {
  readonly id?: number;
  readonly method?: string;
}

/** Responds to `failing` with an error that quotes all headers and the address. */
async function quotingServer(t: TestContext, transport: "http" | "sse", failing: string, status: number) {
  let stream: ServerResponse | undefined;
  const answer = ({ id, method }: Message, req: IncomingMessage, res: ServerResponse): void => {
    if (method === failing) {
      res.writeHead(status, { "content-type": "text/plain" });
      res.end(`refused ${decodeURIComponent(req.url ?? "")} ${Object.values(req.headers).join(" ")} ${req.url}`);
      return;
    }
    const result =
      method === "initialize"
        ? { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "s", version: "1" } }
        : { tools: [{ name: "any", inputSchema: { type: "object" } }] };
    const text = JSON.stringify({ jsonrpc: "2.0", id, result });
    if (id === undefined) res.writeHead(202).end();
    else if (transport === "http") res.writeHead(200, { "content-type": "application/json" }).end(text);
    else {
      res.writeHead(202).end();
      stream?.write(`data: ${text}\n\n`);
    }
  };
  const server = createServer((req, res) => {
    if (req.method === "GET" && transport === "sse") {
      stream = res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(`event: endpoint\ndata: ${req.url}\n\n`);
      return;
    }
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      if (req.method !== "POST") res.writeHead(405).end();
      else answer(JSON.parse(Buffer.concat(chunks).toString()) as Message, req, res);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const [key = "", token = "", query = ""] = SECRETS;
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp?key=${query}`;
  const headers = { "x-api-key": key, authorization: `Bearer ${token}` };
  return { name: "quoting", ...(transport === "sse" ? { sse: { url, headers } } : { mcp: { url, headers } }) };
}

for (const transport of ["http", "sse"] as const)
  for (const failing of ["initialize", "tools/list", "tools/call"])
    test(`${failing} over ${transport}: errors of the server do not contain the credentials`, async (t) => {
      for (const status of STATUSES) {
        const target = await quotingServer(t, transport, failing, status);
        const gateway = await gatewayFor(t, mcpConfig([target]));
        const client = rawClient(`${gateway.url()}/mcp`);
        const received = [(await client.initialize()).text];
        if (client.sessionId !== undefined)
          for (const [method, params] of [
            ["tools/list", {}],
            ["tools/call", { name: "any", arguments: {} }],
          ] as const)
            received.push((await client.post({ jsonrpc: "2.0", id: 5, method, params })).text);
        const outputs = [...received, ...gateway.log()].join("\n");
        assert.match(outputs, new RegExp(`${status}`), "the error is shown");
        for (const secret of SECRETS)
          for (const form of [secret, encodeURIComponent(secret)])
            assert.ok(!outputs.includes(form), `${status}: ${outputs}`);
        await gateway.close();
      }
    });
