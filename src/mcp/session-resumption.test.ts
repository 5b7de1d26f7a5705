import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { rawClient } from "../../test/support/mcp/client.ts";
import { serveMcp } from "../../test/support/mcp/serve-backend.ts";
import { type ClientNotification, parseClientMessage } from "./protocol/json-rpc.ts";

const INFO = { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "s", version: "1" } };

for (const place of ["this replica", "another replica"])
  test(`a cancellation at ${place} reaches a call that waits until its session is resumed`, async (t) => {
    const seen: string[] = [];
    /** Responses to `initialize` that the test sends. */
    const held: (() => void)[] = [];
    let isHolding = false;
    const respond = (response: ServerResponse, id: unknown, result: object): void => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id, result }));
    };
    const server = createServer((request, response) => {
      let body = "";
      request.on("data", (chunk) => {
        body += String(chunk);
      });
      request.on("end", () => {
        const { id, method = "" } = body === "" ? {} : (JSON.parse(body) as { id?: unknown; method?: string });
        seen.push(method);
        if (method === "initialize" && isHolding) held.push(() => respond(response, id, INFO));
        else if (method === "initialize") respond(response, id, INFO);
        // The server does not respond to calls.
        else if (id === undefined) response.writeHead(request.method === "POST" ? 202 : 405).end();
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const served = await serveMcp({ targets: [{ name: "remote", mcp: { url: `http://127.0.0.1:${port}/mcp` } }] });
    try {
      const client = rawClient(served.url);
      await client.initialize();
      // The session's record stays, as if another process had opened it.
      served.hub.sessions.find(client.sessionId ?? "", undefined)?.end("the test ends it", false);
      const adopt = t.mock.method(served.hub.sessions, "adopt");
      isHolding = true;
      const call = client.post({ jsonrpc: "2.0", id: "slow", method: "tools/call", params: { name: "a" } });
      await eventually("the session is being resumed", () => held.length === 1);
      const message = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "slow" } };
      if (place === "this replica") {
        const cancellation = client.post(message);
        const isReceived = (): boolean => served.last?.attributes.mcp?.methodName === "notifications/cancelled";
        await eventually("the cancellation is received", isReceived);
        for (const release of held) release();
        assert.equal((await cancellation).status, 202);
      } else {
        const cancellation = parseClientMessage(JSON.stringify(message)) as ClientNotification;
        adopt.mock.calls[0]?.result?.remoteNotification(cancellation);
        for (const release of held) release();
      }
      await eventually("the server gets the cancellation", () => seen.includes("notifications/cancelled"));
      assert.deepEqual((await call).messages, []);
    } finally {
      await served.close();
      server.closeAllConnections();
      server.close();
    }
  });
