/**
 * Every example loads and runs: a README, the schema line, a configuration that is valid, and a gateway that becomes
 * ready with it; documents lead to it. What the examples that need no foreign program promise in their READMEs is tried
 * here too.
 */
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startApp } from "../src/app/app.ts";
import type { App } from "../src/app/app-options.ts";
import { systemClock } from "../src/base/clock.ts";
import { startProcessor } from "./support/ext-proc/service.ts";
import { rawClient } from "./support/mcp/client.ts";
import { startToolsServer } from "./support/mcp/tools-server.ts";
import { PASS, rejected, startPolicyService } from "./support/mcp-guardrails/service.ts";
import { rawRequest, requestText } from "./support/raw-client.ts";
import { backendFor } from "./support/scenario.ts";
import { certificates } from "./support/tls/certificates.ts";

const examples = join(process.cwd(), "examples");
const SCHEMA_LINE = "# yaml-language-server: $schema=../../schema/config.schema.json\n";
/** What an example takes from the environment to find its port. */
const ANY_PORT = { PORT: "0" };
const names = readdirSync(examples, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && existsSync(join(examples, entry.name, "config.yaml")))
  .map(({ name }) => name);

interface RunningExample {
  readonly app: App;
  url(gateway?: string): string;
}

/** A copy on free ports; every variable without a default has some value. */
async function run(t: TestContext, name: string, environment: Record<string, string> = {}): Promise<RunningExample> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-example-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(join(examples, name), folder, { recursive: true });
  if (name === "tls") {
    writeFileSync(join(folder, "cert.pem"), certificates.server.cert);
    writeFileSync(join(folder, "key.pem"), certificates.server.key);
    writeFileSync(join(folder, "ca.pem"), certificates.root);
  }
  const file = join(folder, "config.yaml");
  const text = readFileSync(file, "utf8");
  const values = Object.fromEntries([...text.matchAll(/\$\{([A-Z_0-9]+)\}/g)].map(([, key]) => [key, "some-value"]));
  // Sections have a default port: they are given a free one as well.
  const moved = text
    .replace(/^(\s*(?:[a-z-]+: \{ )?port: )\d+/gm, "$10")
    .replace(/(\{ port: )\d+/g, "$10")
    .replace(/^(mcp|llm):\n(?![\s\S]*?^ {2}port:)/gm, "$1:\n  port: 0\n")
    .replace(/adminAddr: \S+/, "adminAddr: off");
  writeFileSync(file, moved);
  for (const path of resourcesIn(folder)) {
    const written = readFileSync(path, "utf8");
    if (/^kind: Gateway$/m.test(written)) writeFileSync(path, written.replace(/\bport: \d+/g, "port: 0"));
  }
  const lines: string[] = [];
  const app = await startApp({
    sources: [file, ...resourcesIn(folder)],
    environment: { ...values, ...ANY_PORT, ...environment },
    clock: systemClock,
    output: { write: (line) => void lines.push(line), dropped: () => 0, flushSync: () => undefined },
    version: "test",
    readStdin: () => "",
    defaultAdminAddr: "off",
  });
  t.after(async () => {
    const stopping = app.stop();
    await app.stop();
    await stopping;
  });
  return {
    app,
    url: (gateway) =>
      `http://127.0.0.1:${gateway === undefined ? [...app.ports().values()][0] : app.ports().get(gateway)}`,
  };
}

/** Documents with a `kind` beside the configuration; other files (prices, compose files) are something else. */
function resourcesIn(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => /\.ya?ml$/.test(name) && name !== "config.yaml")
    .map((name) => join(folder, name))
    .filter((path) => /^kind:/m.test(readFileSync(path, "utf8")));
}

test("every example is in the list of examples and is led to by a page of the documents", () => {
  const list = readFileSync(join(examples, "README.md"), "utf8");
  const docs = join(process.cwd(), "docs");
  const pages = readdirSync(docs)
    .filter((file) => file.endsWith(".md"))
    .map((file) => readFileSync(join(docs, file), "utf8"));
  for (const name of names) {
    assert.ok(list.includes(`](${name}/)`), `${name} in examples/README.md`);
    assert.ok(
      pages.some((text) => new RegExp(`\\]\\(\\.\\./examples/${name}/?\\)`).test(text)),
      `${name} in docs`,
    );
  }
});

for (const name of names) {
  test(`examples/${name} has a README and the schema line, loads and listens`, async (t) => {
    assert.ok(existsSync(join(examples, name, "README.md")), "a README");
    assert.ok(
      readFileSync(join(examples, name, "config.yaml"), "utf8").startsWith(SCHEMA_LINE),
      "the schema line first",
    );
    const { app } = await run(t, name);
    assert.ok(app.ports().size > 0, "it listens");
  });
}

test("http-proxy: requests reach the backend; without it the answer says who is at fault", async (t) => {
  const backend = await backendFor(t);
  const up = await run(t, "http-proxy", { BACKEND: backend.host });
  assert.equal((await fetch(`${up.url()}/x`)).status, 200);
  assert.equal(backend.received[0]?.url, "/x");
  const down = await run(t, "http-proxy", { BACKEND: "127.0.0.1:1" });
  assert.equal((await fetch(down.url())).headers.get("x-gateway-error"), "backend_unavailable");
});

test("weighted-backends: a header chooses the new version, weights share the rest", async (t) => {
  const stable = await backendFor(t);
  const fresh = await backendFor(t);
  const example = await run(t, "weighted-backends", { STABLE: stable.host, NEW: fresh.host });
  for (let i = 0; i < 5; i++) await (await fetch(example.url(), { headers: { "x-version": "new" } })).text();
  assert.equal(fresh.received.length, 5);
  for (let i = 0; i < 60; i++) await (await fetch(example.url())).text();
  assert.ok(
    stable.received.length > fresh.received.length - 5,
    `${stable.received.length} : ${fresh.received.length - 5}`,
  );
});

test("session-persistence: requests with the cookie stay on one server", async (t) => {
  const [one, two] = [await backendFor(t), await backendFor(t)];
  const example = await run(t, "session-persistence", { ONE: one.host, TWO: two.host });
  const first = await fetch(example.url());
  const cookie = first.headers.get("set-cookie")?.split(";")[0] ?? "";
  assert.match(cookie, /^shop-session=/);
  for (let i = 0; i < 4; i++) await fetch(example.url(), { headers: { cookie } });
  assert.deepEqual([one.received.length, two.received.length].sort(), [0, 5]);
});

test("cors: listed origins get permission, others do not, the public part is for all", async (t) => {
  const example = await run(t, "cors");
  const allowed = async (path: string, origin: string): Promise<string | null> =>
    (await fetch(example.url() + path, { headers: { origin } })).headers.get("access-control-allow-origin");
  assert.equal(await allowed("/api", "https://app.example.com"), "https://app.example.com");
  assert.equal(await allowed("/api", "https://a.example.org"), "https://a.example.org");
  assert.equal(await allowed("/api", "https://evil.example"), null);
  assert.equal(await allowed("/public", "https://anybody.example"), "*");
});

test("redirects-and-rewrites: old paths lead to new ones, the backend sees its own", async (t) => {
  const backend = await backendFor(t);
  const example = await run(t, "redirects-and-rewrites", { BACKEND: backend.host });
  const moved = await fetch(`${example.url()}/old/page?a=1`, { redirect: "manual" });
  assert.deepEqual([moved.status, moved.headers.get("location")], [308, `${example.url()}/new/page?a=1`]);
  await fetch(`${example.url()}/new/page?a=1`);
  assert.deepEqual(
    [backend.received[0]?.url, backend.received[0]?.headers.host],
    ["/v2/page?a=1", "inner.example.com"],
  );
});

test("tls: plain clients are sent to HTTPS", async (t) => {
  const backend = createServer(certificates.server, (_req, res) => void res.end("secret"));
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    backend.close();
    backend.closeAllConnections();
  });
  const example = await run(t, "tls", { BACKEND: `127.0.0.1:${(backend.address() as AddressInfo).port}` });
  const plain = await fetch(`${example.url("plain")}/x`, { redirect: "manual" });
  assert.equal(plain.headers.get("location"), "https://localhost:3443/x");
  const { request } = await import("node:https");
  const text = await new Promise<string>((resolve, reject) => {
    const port = Number(example.app.ports().get("secure"));
    request({ port, host: "localhost", ca: certificates.root, agent: false }, async (res) => {
      let body = "";
      for await (const part of res) body += String(part);
      resolve(body);
    })
      .once("error", reject)
      .end();
  });
  assert.equal(text, "secret");
});

test("direct-response: health, nothing to be found, and maintenance", async (t) => {
  const example = await run(t, "direct-response");
  assert.equal(await (await fetch(`${example.url()}/healthz`)).text(), "ok\n");
  assert.equal((await fetch(`${example.url()}/internal/x`)).status, 404);
  const closed = await rawRequest(Number(new URL(example.url()).port), requestText("GET /x HTTP/1.1"));
  assert.equal(closed.status, 503);
  assert.match(closed.text, /retry-after: 120/);
  assert.deepEqual(closed.errors, []);
});

test("ext-proc: the processor gets bodies, and without it requests are rejected", async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("hello"));
  const processor = await startProcessor(({ kind, body }) => ({
    [kind]: { response: kind === "responseBody" ? { bodyMutation: { body: Buffer.from(body.toUpperCase()) } } : {} },
  }));
  t.after(() => processor.close());
  const example = await run(t, "ext-proc", { BACKEND: backend.host, PROCESSOR: processor.host });
  assert.equal(await (await fetch(example.url(), { method: "POST", body: "ping" })).text(), "HELLO");
  assert.ok(processor.received.some(({ kind, body }) => kind === "requestBody" && body === "ping"));
  await processor.close();
  assert.equal((await fetch(example.url())).status, 503);
});

test("mcp-guardrails: the service checks calls and lists, and without it both are rejected", async (t) => {
  const server = await startToolsServer([{ name: "echo", inputSchema: { type: "object" } }]);
  t.after(() => server.close());
  const service = await startPolicyService(({ phase }) => (phase === "request" ? PASS : rejected("no")));
  t.after(() => service.close());
  const example = await run(t, "mcp-guardrails", { SERVER: server.url, PROCESSOR: service.host });
  const client = rawClient(`${example.url()}/mcp`);
  await client.initialize();
  assert.equal((await client.call("echo")).error.message, "no");
  assert.equal((await client.request("tools/list")).error.message, "no");
  assert.deepEqual(
    service.received.map(({ phase, method }) => `${phase} ${method}`),
    ["request tools/call", "response tools/call", "response tools/list"],
  );
  await service.close();
  assert.equal((await client.call("echo")).error.code, -32603);
});

test("forward-proxy: known hosts are reached with the password, and others are not", async (t) => {
  const backend = await backendFor(t);
  const port = Number(backend.host.split(":")[1]);
  const example = await run(t, "forward-proxy", { LOCAL_PORT: String(port) });
  const get = (host: string, more = "") =>
    rawRequest(
      Number(new URL(example.url()).port),
      `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${more}\r\n`,
    );
  const password = `Proxy-Authorization: Basic ${Buffer.from("agent:password").toString("base64")}\r\n`;
  assert.equal((await get(`localhost:${port}`)).status, 407);
  assert.equal((await get(`localhost:${port}`, password)).status, 200);
  assert.equal(backend.received.length, 1);
  assert.equal((await get("169.254.169.254", password)).status, 404);
});

test("tcp-routes: the port or the server name selects the server", async (t) => {
  const backend = createServer(certificates.server, (_req, res) => void res.end("shop"));
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    backend.close();
    backend.closeAllConnections();
  });
  const plain = await backendFor(t);
  const shop = `127.0.0.1:${(backend.address() as AddressInfo).port}`;
  const example = await run(t, "tcp-routes", { DATABASE: plain.host, SHOP: shop });
  const database = Number(new URL(example.url("database")).port);
  assert.equal((await rawRequest(database, requestText("GET / HTTP/1.1"))).status, 200);
  const { request } = await import("node:https");
  const page = (servername: string) =>
    new Promise<string>((resolve) => {
      const port = Number(example.app.ports().get("secure"));
      const options = { port, host: "127.0.0.1", servername, rejectUnauthorized: false, agent: false };
      request(options, async (res) => {
        let body = "";
        for await (const part of res) body += String(part);
        resolve(body);
      })
        .once("error", () => resolve("closed"))
        .end();
    });
  assert.equal(await page("eu.shop.example.com"), "shop");
  assert.equal(await page("other.example.com"), "closed");
});

test("fault-injection: a header delays or aborts the request, others reach the backend", async (t) => {
  const backend = await backendFor(t);
  const example = await run(t, "fault-injection", { BACKEND: backend.host });
  const aborted = await fetch(`${example.url()}/x`, { headers: { "x-fault": "abort" } });
  assert.deepEqual([aborted.status, await aborted.text()], [503, "injected fault at /x\n"]);
  assert.equal(backend.received.length, 0);
  assert.equal((await fetch(`${example.url()}/x`, { headers: { "x-fault": "delay" } })).status, 200);
  assert.equal((await fetch(`${example.url()}/x`)).status, 200);
  assert.equal(backend.received.length, 2);
});

test("token-exchange: the backend gets the exchanged token, and a client without a token gets 401", async (t) => {
  const backend = await backendFor(t);
  const forms: URLSearchParams[] = [];
  const server = await backendFor(t, (req, res) => {
    let body = "";
    req.on("data", (part) => {
      body += String(part);
    });
    req.on("end", () => {
      forms.push(new URLSearchParams(body));
      res.end(JSON.stringify({ access_token: "for-the-shop", token_type: "Bearer", expires_in: 60 }));
    });
  });
  const example = await run(t, "token-exchange", { BACKEND: backend.host, TOKEN_URL: `http://${server.host}/token` });
  assert.equal((await fetch(example.url())).status, 401);
  assert.equal((await fetch(example.url(), { headers: { authorization: "Bearer mine" } })).status, 200);
  assert.deepEqual([forms[0]?.get("subject_token"), forms[0]?.get("audience")], ["mine", "shop"]);
  assert.deepEqual(
    backend.received.map(({ headers }) => headers.authorization),
    ["Bearer for-the-shop"],
  );
});

test("llm-models: two models share the URL and the key of one provider", async (t) => {
  const provider = await backendFor(t);
  const variables = { PORT: "0", OPENAI_BASE_URL: `http://${provider.host}/v1`, OPENAI_API_KEY: "shared-key" };
  const example = await run(t, "llm-models", variables);
  for (const model of ["fast", "gpt-x"]) {
    const answer = await fetch(`${example.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] }),
    });
    await answer.text();
  }
  assert.deepEqual(
    provider.received.map(({ headers, body }) => [headers.authorization, JSON.parse(body).model]),
    [
      ["Bearer shared-key", "gpt-4.1-mini"],
      ["Bearer shared-key", "gpt-x"],
    ],
  );
});

const CHAT = JSON.stringify({ model: "demo", messages: [{ role: "user", content: "Tell me about rate limits." }] });

async function chat(url: string, headers: Record<string, string>): Promise<Response> {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: CHAT,
  });
  await answer.text();
  return answer;
}

test("api-keys: the key says who it is, and the owner's tier what he may", async (t) => {
  const example = await run(t, "api-keys");
  for (const [headers, status] of [
    [{ authorization: "Bearer alice-secret" }, 200],
    [{ "x-api-key": "alice-secret" }, 200],
    [{ authorization: "Bearer bob-secret" }, 403],
    [{ authorization: "Bearer wrong" }, 401],
  ] as const) {
    assert.equal((await chat(example.url(), headers)).status, status, JSON.stringify(headers));
  }
});

test("limits-per-user: the call that overshoots is answered, the next is refused, another user is not", async (t) => {
  const example = await run(t, "limits-per-user");
  const alice = { authorization: "Bearer alice-secret" };
  let answer = await chat(example.url(), alice);
  assert.equal(answer.headers.get("x-ratelimit-limit"), "100");
  for (let left = 8; answer.status === 200 && left > 0; left--) answer = await chat(example.url(), alice);
  assert.equal(answer.status, 429);
  assert.equal(answer.headers.get("retry-after"), answer.headers.get("x-ratelimit-reset"));
  assert.equal((await chat(example.url(), { authorization: "Bearer bob-secret" })).status, 200);
});

test("limits-gateway-ceiling: the ceiling holds over all routes, and a refused request costs nothing", async (t) => {
  const example = await run(t, "limits-gateway-ceiling");
  const ask = async (path: string, times: number): Promise<number[]> => {
    const statuses: number[] = [];
    for (let i = 0; i < times; i++) statuses.push((await fetch(example.url() + path)).status);
    return statuses;
  };
  assert.deepEqual(await ask("/search", 3), [200, 200, 429]);
  assert.deepEqual(await ask("/", 4), [200, 200, 200, 429]);
});

test("mcp-tools-by-role: who has no role is refused, before any server is started", async (t) => {
  const example = await run(t, "mcp-tools-by-role");
  const status = async (headers: Record<string, string>): Promise<number> =>
    (await fetch(`${example.url()}/mcp`, { method: "POST", headers })).status;
  assert.equal(await status({ "x-api-key": "eve-secret" }), 403);
  assert.equal(await status({}), 401);
  // Admitted: only now the protocol looks at it, and misses the content type.
  assert.equal(await status({ "x-api-key": "bob-secret" }), 415);
});
