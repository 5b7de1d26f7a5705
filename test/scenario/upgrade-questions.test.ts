/**
 * An upgrade while clients of several sessions decide on requests of their servers (elicitation, sampling, roots). Their
 * responses, cancellations and retries arrive at the new process and reach the calls, which run in the old process.
 * `UPGRADE_CLIENTS=50` sets the number of clients that wait.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { LEGACY_HEADERS, type OpenStream, type RawClient, rawClient } from "../support/mcp/client.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { modernPost, modernRequest } from "../support/mcp/modern-client.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";
import { BUNDLE, threadingNode } from "../support/threaded-gateway.ts";

const skip = process.platform !== "linux" && "sockets are handed over on Linux only";
const skipWithoutThreads = threadingNode() === undefined && "needs Node 22.12 or the package node-linux-<arch>";
const METHODS = ["elicitation/create", "sampling/createMessage", "roots/list"] as const;
const CLIENTS = Number(process.env.UPGRADE_CLIENTS ?? 6);

const newer = threadingNode();
const VARIANTS = [1, 2].flatMap((threads) => ["memory", "folder", "redis"].map((store) => [store, threads] as const));

for (const [store, threads] of VARIANTS) {
  const options = { skip: skip || (store === "redis" && skipWithoutRedis) || (threads > 1 && skipWithoutThreads) };
  const named = threads === 1 ? `${store} store` : `${store} store, ${threads} threads`;

  test(`${named}: responses to server requests survive an upgrade`, options, async (t) => {
    const { url, upgrade } = await start(t, store, threads);
    const waiting = await Promise.all(
      Array.from({ length: CLIENTS }, (_, i) => askedClient(url, METHODS[i % METHODS.length] as string)),
    );
    await upgrade();
    for (const { client, questionId, method } of waiting)
      assert.equal(await respondOnNewConnection(client, questionId, { said: method }), 202);
    for (const { stream, method } of waiting) {
      const { message } = await stream.next(({ result, error }) => (result ?? error) !== undefined);
      assert.equal(message.result?.content[0].text, JSON.stringify({ said: method }), JSON.stringify(message));
      stream.close();
    }
  });

  test(`${named}: a call of the old process can be cancelled`, options, async (t) => {
    const { url, upgrade, cancelledFile } = await start(t, store, threads);
    const { client, stream } = await askedClient(url, "elicitation/create");
    await upgrade();
    const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } };
    assert.equal((await postOnNewConnection(url, sessionHeaders(client), JSON.stringify(cancel))).status, 202);
    await eventually("the server is notified", () => existsSync(cancelledFile));
    stream.close();
  });

  test(`${named}: a 2026-07-28 client retries a call after an upgrade`, options, async (t) => {
    const { url, upgrade } = await start(t, store, threads);
    const capabilities = { sampling: {} };
    const ask = { name: "ask", arguments: {} };
    const { message } = await modernPost(url, "tools/call", ask, { capabilities });
    assert.equal(message.result.resultType, "input_required");
    await upgrade();
    const { requestState, inputRequests } = message.result;
    const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { said: "later" }]));
    const { body, headers } = modernRequest("tools/call", { ...ask, inputResponses, requestState }, { capabilities });
    const { status, text } = await postOnNewConnection(url, headers, body);
    assert.equal(status, 200);
    assert.match(text, /said.*later/);
  });
}

interface Started {
  readonly url: string;
  /** The server writes it when a call is cancelled. */
  readonly cancelledFile: string;
  upgrade(): Promise<void>;
}

async function start(t: TestContext, store: string, threads: number): Promise<Started> {
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
  const cancelledFile = join(folder, "cancelled");
  const config = {
    config: {
      workers: threads,
      adminAddr: "127.0.0.1:0",
      logging: { level: "info,access=off" },
      drainTimeout: "2m",
      ...stores[store as keyof typeof stores],
    },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        name: "tools",
        backends: [
          { mcp: { targets: [{ name: "odd", stdio: stdioFixture("odd-server", `--cancelled=${cancelledFile}`) }] } },
        ],
      },
    ],
  };
  writeFileSync(file, JSON.stringify(config));
  const command = threads === 1 ? {} : { command: [newer ?? "", BUNDLE] };
  const gateway = startGatewayProcess(t, ["-f", file], command);
  const url = `http://127.0.0.1:${await gateway.port()}/mcp`;
  const adminUrl = await gateway.adminUrl();
  return {
    url,
    cancelledFile,
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

async function respondOnNewConnection(client: RawClient, id: number, result: object): Promise<number | undefined> {
  const body = JSON.stringify({ jsonrpc: "2.0", id, result });
  return (await postOnNewConnection(client.url, sessionHeaders(client), body)).status;
}

function sessionHeaders({ sessionId = "", version }: RawClient): Record<string, string> {
  return { ...LEGACY_HEADERS, "mcp-session-id": sessionId, "mcp-protocol-version": version };
}

function postOnNewConnection(
  url: string,
  headers: Record<string, string>,
  body: string,
): Promise<{ status: number | undefined; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.once("end", () => resolve({ status: response.statusCode, text }));
    });
    sent.once("error", reject);
    sent.end(body);
  });
}
