/**
 * A policy that rejects a client does so in front of every kind of backend: in each scope, for each method, path, and
 * protocol of the backend, no rejected request reaches a server or starts a program.
 */
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { type ClientHttp2Session, connect, type IncomingHttpHeaders } from "node:http2";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { backends } from "../../src/backends/index.ts";
import { eventually } from "../support/eventually.ts";
import { openRawClient } from "../support/raw-client.ts";
import { gatewayFor } from "../support/scenario.ts";

const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const KEY_SET = JSON.stringify({
  keys: [{ ...publicKey.export({ format: "jwk" }), kid: "1", alg: "ES256", use: "sig" }],
});
const JWT = { issuer: "https://issuer.test", audiences: ["a"], jwks: { inline: KEY_SET } };
const HTPASSWD = `alice:{SHA}${createHash("sha1").update("right").digest("base64")}`;

interface Guard {
  readonly policy: object;
  readonly statuses: readonly number[];
  readonly scopes: readonly ("gateway" | "route")[];
}

const BOTH = ["gateway", "route"] as const;

/** No request of this test passes any of them. */
const GUARDS: Readonly<Record<string, Guard>> = {
  apiKey: { policy: { apiKey: { keys: [{ key: "right-key" }] } }, statuses: [401], scopes: BOTH },
  basicAuth: { policy: { basicAuth: { htpasswd: HTPASSWD } }, statuses: [401], scopes: BOTH },
  jwtAuth: { policy: { jwtAuth: JWT }, statuses: [401], scopes: BOTH },
  "jwtAuth in a cookie": {
    policy: { jwtAuth: { ...JWT, location: { cookie: { name: "token" } } } },
    statuses: [401],
    scopes: BOTH,
  },
  mcpAuthentication: {
    policy: { mcpAuthentication: { ...JWT, resourceMetadata: { resource: "https://mcp.test/mcp" } } },
    statuses: [401],
    scopes: ["route"],
  },
  authorization: { policy: { authorization: { rules: ["1 > 2"] } }, statuses: [403], scopes: BOTH },
  "authorization that fails": {
    policy: { authorization: { rules: ['request.headers["x-missing"] == "a"'] } },
    statuses: [403],
    scopes: BOTH,
  },
  extAuthz: { policy: { extAuthz: { host: "127.0.0.1:1" } }, statuses: [403, 500, 503], scopes: BOTH },
  extProc: { policy: { extProc: { host: "127.0.0.1:1" } }, statuses: [500, 502, 503, 504], scopes: BOTH },
  "rateLimit by a service": {
    policy: {
      rateLimit: {
        global: {
          host: "127.0.0.1:1",
          domain: "d",
          failureMode: "closed",
          descriptors: [{ entries: [{ key: "k", value: "client.address" }] }],
        },
      },
    },
    statuses: [429, 500, 503],
    scopes: BOTH,
  },
  directResponse: {
    policy: { directResponse: { conditional: [{ condition: "true", status: 418 }] } },
    statuses: [418],
    scopes: ["route"],
  },
};

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

const JSON_BODY = { "content-type": "application/json", accept: "application/json, text/event-stream" };
const post = (path: string, body: object, headers = {}): Sent => ({
  method: "POST",
  path,
  headers: { ...JSON_BODY, ...headers },
  body: JSON.stringify(body),
});
const rpc = (method: string, params: object = {}): object => ({ jsonrpc: "2.0", id: 1, method, params });
const WEBSOCKET = {
  connection: "upgrade",
  upgrade: "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};

const PLAIN: readonly Sent[] = [
  ...["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"].map((method) => ({
    method,
    path: "/a/b?c=d",
  })),
  { method: "GET", path: "/", headers: WEBSOCKET },
  { method: "GET", path: "/favicon.ico" },
  { method: "GET", path: "/.well-known/security.txt" },
  { method: "OPTIONS", path: "/", headers: { origin: "https://app.test" } },
  { method: "PUT", path: "/a", headers: { expect: "100-continue" }, body: "x" },
  { method: "POST", path: "/a", headers: { "content-type": "application/grpc", te: "trailers" }, body: "" },
];

const INITIALIZE = rpc("initialize", {
  protocolVersion: "2025-06-18",
  capabilities: {},
  clientInfo: { name: "c", version: "1" },
});
const MODERN = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list" };
const MCP: readonly Sent[] = [
  post("/mcp", INITIALIZE),
  post("/mcp", rpc("tools/list"), { "mcp-session-id": "guessed" }),
  post("/mcp", rpc("tools/call", { name: "t_a", arguments: {} }), { "mcp-session-id": "guessed" }),
  post("/mcp", rpc("tools/list"), MODERN),
  post("/mcp", [INITIALIZE]),
  { method: "GET", path: "/mcp", headers: { accept: "text/event-stream" } },
  { method: "GET", path: "/mcp", headers: { accept: "text/event-stream", "last-event-id": "1-1" } },
  { method: "GET", path: "/sse", headers: { accept: "text/event-stream" } },
  post("/sse?sessionId=guessed", rpc("tools/list")),
  { method: "DELETE", path: "/mcp", headers: { "mcp-session-id": "guessed" } },
];

const CHAT = { model: "m", messages: [{ role: "user", content: "hi" }] };
const LLM: readonly Sent[] = [
  post("/v1/chat/completions", CHAT),
  post("/v1/chat/completions", { ...CHAT, stream: true }),
  { ...post("/v1/chat/completions", CHAT), method: "PUT" },
  post("/v1/messages", { ...CHAT, max_tokens: 5 }),
  post("/v1/messages/count_tokens", CHAT),
  post("/v1/responses", { model: "m", input: "hi" }),
  post("/v1/embeddings", { model: "m", input: "hi" }),
  post("/v1/completions", { model: "m", prompt: "hi" }),
  post("/v1/images/generations", { model: "m", prompt: "hi" }),
  post("/v1/audio/speech", { model: "m", input: "hi", voice: "a" }),
  post("/v1/moderations", { input: "hi" }),
  post("/v1/rerank", { model: "m", query: "a", documents: ["b"] }),
  post("/v1beta/models/m:generateContent", { contents: [{ parts: [{ text: "hi" }] }] }),
  post("/model/m/converse", { messages: [{ role: "user", content: [{ text: "hi" }] }] }),
  { method: "GET", path: "/v1/models" },
  { method: "GET", path: "/v1/files" },
  { method: "DELETE", path: "/v1/files/a" },
  { method: "GET", path: "/v1/realtime?model=m", headers: WEBSOCKET },
];

const A2A: readonly Sent[] = [
  { method: "GET", path: "/.well-known/agent-card.json" },
  { method: "GET", path: "/.well-known/agent.json" },
  post("/", rpc("message/send", { message: { role: "user", parts: [] } })),
  post("/", rpc("message/stream", { message: { role: "user", parts: [] } })),
];

interface Kind {
  /** The key of the backend's definition. */
  readonly of: string;
  readonly backend: object;
  readonly requests: readonly Sent[];
}

function kindsFor(host: string, folder: string): Readonly<Record<string, Kind>> {
  const url = `http://${host}`;
  const tools = (target: object): object => ({ mcp: { targets: [{ name: "t", ...target }] } });
  const provider = { openAICompatible: { name: "p", baseUrl: `${url}/v1` } };
  const started = join(folder, STARTED);
  return {
    host: { of: "host", backend: { host }, requests: PLAIN },
    "mcp over HTTP": { of: "mcp", backend: tools({ mcp: { url: `${url}/mcp` } }), requests: MCP },
    "mcp over SSE": { of: "mcp", backend: tools({ sse: { url: `${url}/sse` } }), requests: MCP },
    "mcp over stdio": {
      of: "mcp",
      backend: tools({ stdio: { cmd: "sh", args: ["-c", `touch ${started}; cat`] } }),
      requests: MCP,
    },
    "mcp of an API": {
      of: "mcp",
      backend: tools({ openapi: { url: `${url}/openapi.json`, server: url } }),
      requests: MCP,
    },
    ai: { of: "ai", backend: { ai: { provider } }, requests: LLM },
    "ai with models": { of: "ai", backend: { ai: { models: [{ name: "m", provider }] } }, requests: LLM },
    "ai with a cache": {
      of: "ai",
      backend: { ai: { provider, cache: { ttl: "1m", scope: "shared" } } },
      requests: LLM,
    },
    a2a: { of: "a2a", backend: { a2a: { url } }, requests: A2A },
  };
}

/** The program of the stdio server creates this file. */
const STARTED = "started";

/** Other tests guard these: they need a cluster, a forward proxy, a login, and the network console. */
const ELSEWHERE = ["service", "dynamic", "mcpLogins", "ui"];

/** Counts connections. Nothing is answered, so nothing that a request causes is over before the next one. */
async function startServer(t: TestContext): Promise<{ readonly host: string; readonly connections: () => number }> {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on("error", () => undefined).destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { host: `127.0.0.1:${(server.address() as { port: number }).port}`, connections: () => connections };
}

const hostOf = (kind: string): string => `${kind.replaceAll(" ", "-").toLowerCase()}.test`;

const gatewayName = (guard: string, scope: string): string => `${guard} ${scope}`.replaceAll(" ", "-").toLowerCase();

function configFor(guards: Readonly<Record<string, Guard | undefined>>, kinds: Readonly<Record<string, Kind>>): string {
  const gateways: Record<string, object> = {};
  const routes: object[] = [];
  for (const [name, guard] of Object.entries(guards))
    for (const scope of guard?.scopes ?? BOTH.slice(0, 1)) {
      const gateway = gatewayName(name, scope);
      const policies = guard === undefined ? {} : { policies: guard.policy };
      gateways[gateway] = { port: 0, address: "127.0.0.1", ...(scope === "gateway" ? policies : {}) };
      for (const [kind, { backend }] of Object.entries(kinds))
        routes.push({
          name: `${gateway}-${hostOf(kind)}`,
          gateways: [gateway],
          hostnames: [hostOf(kind)],
          matches: [{ path: { pathPrefix: "/" } }],
          ...(scope === "route" ? policies : {}),
          backends: [backend],
        });
    }
  return JSON.stringify({ config: { logging: { level: "error" } }, gateways, routes });
}

async function sendPlain(port: number, host: string, { method, path, headers = {}, body = "" }: Sent): Promise<number> {
  const length = body === "" ? {} : { "content-length": body.length };
  const fields = Object.entries({ host, connection: "close", ...headers, ...length }).map((field) => field.join(": "));
  const client = openRawClient(port);
  client.write(`${[`${method} ${path} HTTP/1.1`, ...fields].join("\r\n")}\r\n\r\n${body}`);
  const head = await client.until("\r\n\r\n");
  client.close();
  return Number(head.slice("HTTP/1.1 ".length, "HTTP/1.1 200".length));
}

/** Returns 0 if there is no response. */
function sendHttp2(
  client: ClientHttp2Session,
  host: string,
  { method, path, headers = {}, body = "" }: Sent,
): Promise<number> {
  return new Promise((resolve) => {
    const { connection: _, upgrade: __, ...fields } = headers;
    const head = { ":method": method, ":path": path, ":authority": host, ...fields };
    const stream = client.request(head, { endStream: body === "" });
    stream.on("response", (response: IncomingHttpHeaders) => {
      resolve(Number(response[":status"]));
      stream.close();
    });
    stream.on("error", () => undefined);
    stream.on("close", () => resolve(0));
    if (body !== "") stream.end(body);
  });
}

test("there is a sample of every kind of backend", () => {
  const named = new Set(Object.values(kindsFor("a.test", "")).map(({ of }) => of));
  assert.deepEqual(
    backends.map(({ key }) => key).filter((key) => !named.has(key)),
    ELSEWHERE,
  );
});

test("a rejected request reaches no backend, whatever its kind, scope, method, path, and protocol", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "guarded-backends-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const server = await startServer(t);
  const kinds = kindsFor(server.host, folder);
  const gateway = await gatewayFor(t, configFor(GUARDS, kinds));
  const wrong: string[] = [];
  let cases = 0;
  for (const [name, { scopes, statuses }] of Object.entries(GUARDS))
    for (const scope of scopes) {
      const port = gateway.port(gatewayName(name, scope));
      const client = connect(`http://127.0.0.1:${port}`);
      for (const [kind, { requests }] of Object.entries(kinds))
        for (const request of requests) {
          // A guard gets each request over one of the protocols. If it has two scopes, it gets the others there.
          const isHttp2 = cases++ % 2 === 0;
          const status = await (isHttp2
            ? sendHttp2(client, hostOf(kind), request)
            : sendPlain(port, hostOf(kind), request));
          if (!statuses.includes(status) || server.connections() > 0 || existsSync(join(folder, STARTED)))
            wrong.push(
              `${name} (${scope}), ${kind}, HTTP/${isHttp2 ? 2 : 1}: ${request.method} ${request.path} is ${status}`,
            );
        }
      client.destroy();
    }
  assert.deepEqual(wrong, []);
  assert.ok(cases > 2_000, `${cases} cases`);
});

test("without a policy, the same requests reach every backend", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "guarded-backends-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const server = await startServer(t);
  const kinds = kindsFor(server.host, folder);
  const gateway = await gatewayFor(t, configFor({ open: undefined }, kinds));
  const client = connect(`http://127.0.0.1:${gateway.port(gatewayName("open", "gateway"))}`);
  t.after(() => client.destroy());
  for (const [kind, { requests }] of Object.entries(kinds)) {
    const before = server.connections();
    for (const request of requests) void sendHttp2(client, hostOf(kind), request);
    await eventually(`${kind} is reached`, () =>
      kind === "mcp over stdio" ? existsSync(join(folder, STARTED)) : server.connections() > before,
    );
  }
});
