/**
 * An upgrade while clients of several sessions decide on requests of their servers (elicitation, sampling, roots). Their
 * responses arrive at the new process and reach the calls, which run in the old process.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { LEGACY_HEADERS, type OpenStream, type RawClient, rawClient } from "../support/mcp/client.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

const skip = process.platform !== "linux" && "sockets are handed over on Linux only";
const METHODS = ["elicitation/create", "sampling/createMessage", "roots/list"];

for (const store of ["memory", "folder", "redis"]) {
  test(`${store} store: responses to server requests survive an upgrade`, {
    skip: skip || (store === "redis" && skipWithoutRedis),
  }, async (t) => {
    const { url, upgrade } = await start(t, store);
    const waiting = await Promise.all(METHODS.map((method) => askedClient(url, method)));
    await upgrade();
    for (const { client, questionId, method } of waiting)
      assert.equal(await respondOnNewConnection(client, questionId, { said: method }), 202);
    for (const { stream, method } of waiting) {
      const { message } = await stream.next(({ result, error }) => (result ?? error) !== undefined);
      assert.equal(message.result?.content[0].text, JSON.stringify({ said: method }), JSON.stringify(message));
      stream.close();
    }
  });
}

async function start(t: TestContext, store: string): Promise<{ url: string; upgrade(): Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), "upgrade-questions-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const redis = store === "redis" ? await startRedis() : undefined;
  if (redis) t.after(() => redis.close());
  const stores = {
    memory: {},
    folder: { store: { folder: join(folder, "state") } },
    redis: { store: { redis: redis?.url } },
  };
  const file = join(folder, "config.yaml");
  const config = {
    config: {
      adminAddr: "127.0.0.1:0",
      logging: { level: "info,access=off" },
      drainTimeout: "2m",
      ...stores[store as keyof typeof stores],
    },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [{ name: "tools", backends: [{ mcp: { targets: [{ name: "odd", stdio: stdioFixture("odd-server") }] } }] }],
  };
  writeFileSync(file, JSON.stringify(config));
  const gateway = startGatewayProcess(t, ["-f", file]);
  const url = `http://127.0.0.1:${await gateway.port()}/mcp`;
  const adminUrl = await gateway.adminUrl();
  return {
    url,
    async upgrade() {
      const response = await fetch(`${adminUrl}/upgrade`, { method: "POST" });
      const text = await response.text();
      const pid = Number(/process (\d+); process/.exec(text)?.[1]);
      assert.ok(pid, text);
      t.after(() => {
        try {
          process.kill(pid, "SIGKILL");
        } catch {
          // The process has already exited.
        }
      });
      // From now on, only the new process accepts connections.
      await gateway.logged("draining");
    },
  };
}

interface AskedClient {
  readonly client: RawClient;
  readonly stream: OpenStream;
  readonly method: string;
  readonly questionId: number;
}

/** Opens a session and calls a tool whose server sends the client a request. */
async function askedClient(url: string, method: string): Promise<AskedClient> {
  const client = rawClient(url);
  await client.initialize({ capabilities: { elicitation: {}, sampling: {}, roots: {} } });
  await client.post({ jsonrpc: "2.0", method: "notifications/initialized" });
  const params = { name: "ask", arguments: { method, params: { message: "?" } } };
  const stream = await client.stream({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const { message } = await stream.next((one) => one.method === method);
  return { client, stream, method, questionId: message.id };
}

function respondOnNewConnection(client: RawClient, id: number, result: object): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const headers = {
      ...LEGACY_HEADERS,
      "mcp-session-id": client.sessionId ?? "",
      "mcp-protocol-version": client.version,
    };
    const sent = request(client.url, { method: "POST", headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    sent.once("error", reject);
    sent.end(JSON.stringify({ jsonrpc: "2.0", id, result }));
  });
}
