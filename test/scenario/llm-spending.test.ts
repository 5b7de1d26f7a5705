/**
 * Every endpoint of a provider with every method: while a hard budget or a token limit applies, nothing is forwarded
 * twice on the last token, except for what is known to be free.
 */
import assert from "node:assert/strict";
import { Agent, request as httpRequest } from "node:http";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { ENDPOINTS, JOB_ENDPOINTS, SPENDING_ENDPOINTS } from "../support/llm/endpoints.ts";

const KEY = 'request.headers["x-case"]';
const BUDGET = { budgets: { limits: [{ name: "b", tokens: 1, per: "day", key: KEY }] } };
const LIMIT = { rateLimit: { local: [{ tokens: 1, unit: "Hours", key: KEY }] } };
const DOLLARS = { budgets: { limits: [{ name: "d", cost: 1, per: "day" }] } };
const ALLOWED = {
  budgets: { ...BUDGET.budgets, unpriced: "allow" },
  rateLimit: { ...LIMIT.rateLimit, unpriced: "allow" },
};
const SOFT = { budgets: { limits: [{ name: "s", tokens: 1, per: "day", hard: false }] } };

const forwarded = new Map<string, number>();
const agent = new Agent({ keepAlive: true, maxSockets: 8 });
let provider: TestBackend;
let gateway: TestGateway;

before(async () => {
  provider = await startBackend((req, res) => {
    const name = String(req.headers["x-case"]);
    forwarded.set(name, (forwarded.get(name) ?? 0) + 1);
    const isStream = req.url?.includes("stream") === true;
    req.resume().on("end", () => {
      res.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
      res.end(isStream ? 'data: {"usage":{"total_tokens":1000}}\n\n' : '{"usage":{"total_tokens":1000}}');
    });
  });
  provider.server.on("upgrade", (_req, socket) => socket.end("HTTP/1.1 101 Switching Protocols\r\n\r\n"));
  const at = { auth: { key: "k" }, hostOverride: provider.host };
  const backends = {
    openai: { ai: { provider: { openAI: {} }, ...at } },
    gemini: { ai: { provider: { gemini: {} }, ...at } },
    azure: { ai: { provider: { azure: { resourceName: "r", apiVersion: "2024-10-21" } }, ...at } },
    host: { host: provider.host },
  };
  const policies = { budget: BUDGET, limit: LIMIT, dollars: DOLLARS, allowed: ALLOWED, soft: SOFT };
  const pairs = Object.entries(backends).flatMap(([kind, backend]) =>
    Object.entries(policies).map(([name, policy]) => ({ name: `${kind}-${name}`, backend, policy })),
  );
  gateway = await startGateway(
    JSON.stringify({
      gateways: Object.fromEntries(pairs.map(({ name }) => [name, { port: 0 }])),
      routes: pairs.map(({ name, backend, policy }) => ({
        name,
        gateways: name,
        backends: [backend],
        policies: policy,
      })),
    }),
  );
});
after(async () => {
  agent.destroy();
  await gateway?.close();
  await provider.close();
});

interface Sent {
  readonly status: number;
  readonly body: string;
}

function send(listener: string, method: string, path: string, name: string): Promise<Sent> {
  const { port } = new URL(gateway.url(listener));
  const model = path.includes("models/g:") ? "g" : "m";
  const body = method === "GET" || method === "DELETE" ? "" : `{"model":"${model}","messages":[],"contents":[]}`;
  return new Promise((resolve, reject) => {
    const headers = { "x-case": name, ...(body === "" ? {} : { "content-type": "application/json" }) };
    const request = httpRequest({ port, path, method, agent, headers: { ...headers, "content-length": body.length } });
    request.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
    });
    request.on("error", reject);
    request.end(body);
  });
}

for (const kind of ["openai", "gemini", "azure", "host"]) {
  const isWhole = kind === "openai" || kind === "host";
  for (const policy of isWhole ? ["budget", "limit"] : ["budget"]) {
    test(`${kind}: no endpoint is forwarded twice on the last token of a ${policy}`, async () => {
      const listener = `${kind}-${policy}`;
      const tried = SPENDING_ENDPOINTS.flatMap((path) =>
        (isWhole && policy === "budget" ? ["POST", "PATCH"] : ["POST"]).map((method) => ({ method, path })),
      );
      await Promise.all(
        tried.map(async ({ method, path }) => {
          const name = `${listener} ${method} ${path}`;
          const first = await send(listener, method, path, name);
          // Responses that cannot be translated are charged too.
          if (!forwarded.has(name)) assert.ok(first.status >= 400, name);
          else
            await eventually(
              `${name} is charged`,
              async () => (await send(listener, method, path, name)).status === 429,
            );
        }),
      );
      for (const { method, path } of tried) assert.ok((forwarded.get(`${listener} ${method} ${path}`) ?? 0) <= 1, path);
    });
  }
}

const UNREPORTED = [...ENDPOINTS.filter(({ cost }) => cost === "unmetered").map(({ path }) => path), ...JOB_ENDPOINTS];

for (const policy of ["budget", "limit", "dollars"]) {
  test(`${policy}: an endpoint with an unknown cost is refused, and the error names the setting`, async () => {
    const setting = policy === "limit" ? "rateLimit.unpriced: allow" : "budgets.unpriced: allow";
    for (const listener of [`openai-${policy}`, `host-${policy}`]) {
      for (const path of UNREPORTED) {
        const name = `unreported ${listener} ${path}`;
        const { status, body } = await send(listener, "POST", path, name);
        assert.equal(status, 403, `${listener} ${path}: ${body}`);
        assert.ok(body.includes(setting), body);
        assert.equal(forwarded.get(name), undefined, name);
      }
    }
  });
}

test("`unpriced: allow` and soft budgets let them pass, and charge a reported usage", async () => {
  for (const listener of ["openai-allowed", "openai-soft", "host-allowed"]) {
    for (const path of ["/v1/batches", "/v1/threads/t/runs", "/v1/videos"]) {
      const name = `allowed ${listener} ${path}`;
      assert.equal((await send(listener, "POST", path, name)).status, 200, name);
      if (listener.endsWith("allowed"))
        await eventually("it is charged", async () => (await send(listener, "POST", path, name)).status === 429);
    }
  }
});

test("free endpoints pass without a charge, also after a budget is exhausted for calls", async () => {
  const free = [
    ["GET", "/v1/models"],
    ["GET", "/v1/batches/b"],
    ["DELETE", "/v1/files/f"],
    ["GET", "/v1/threads/t/runs"],
  ] as const;
  for (const [method, path] of free)
    for (let i = 0; i < 2; i++) assert.equal((await send("openai-budget", method, path, "free")).status, 200, path);
  for (let i = 0; i < 2; i++)
    assert.equal((await send("openai-budget", "POST", "/v1/threads", "free")).status, 200, "a thread is free");
});

test("an unknown path of a provider is refused unless it is sent as a chat request", async () => {
  for (const method of ["GET", "DELETE", "PUT", "PATCH"])
    assert.equal((await send("openai-budget", method, "/v1/unknown", "unknown")).status, 403, method);
  assert.equal((await send("host-budget", "GET", "/v1/unknown", "unknown")).status, 200);
});

test("a WebSocket to a model is refused", async () => {
  for (const listener of ["openai-budget", "openai-limit", "host-budget", "host-limit"]) {
    const { port } = new URL(gateway.url(listener));
    const headers = {
      ...{ connection: "upgrade", upgrade: "websocket", "sec-websocket-version": "13", "x-case": "socket" },
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    };
    const request = httpRequest({ port, path: "/v1/realtime?model=m", headers });
    const status = await new Promise((resolve, reject) => {
      request.on("response", (response) => resolve(response.resume().statusCode));
      request.on("upgrade", (_response, socket) => resolve(socket.destroy() && 101));
      request.on("error", reject);
      request.end();
    });
    assert.equal(status, 403, listener);
  }
});
