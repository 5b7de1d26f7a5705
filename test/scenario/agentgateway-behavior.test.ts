/**
 * Small configurations in agentgateway's format, loaded as they are. What is expected of each (status, headers, body)
 * is what agentgateway documents.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { type TestContext, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";
import { ISSUER, KEYS_FILE, token } from "../support/identity/known-issuer.ts";
import { startUpstream } from "../support/llm/upstream.ts";
import { rawClient } from "../support/mcp/client.ts";
import { startRecordingServer } from "../support/mcp/recording-server.ts";
import { mutated, rejected, startPolicyService } from "../support/mcp-guardrails/service.ts";

/** One bind with one listener. */
const bind = (routes: string): string => `
binds:
- port: 0
  listeners:
  - routes:
${routes}
`;

async function serving(t: TestContext, yaml: string, files: Record<string, string> = {}) {
  const gateway = await startGateway(yaml, { files });
  t.after(() => gateway.close());
  const send = (path: string, init: RequestInit = {}) =>
    fetch(`${gateway.url()}${path}`, { redirect: "manual", ...init });
  return { gateway, send };
}

async function backendOf(t: TestContext, listener?: Parameters<typeof startBackend>[0]): Promise<TestBackend> {
  const backend = await startBackend(listener);
  t.after(() => backend.close());
  return backend;
}

test("a route matches method, query, and headers together", async (t) => {
  const { host } = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - matches:
      - path: { pathPrefix: /match }
        method: GET
        query: [{ name: param, value: { exact: hello } }]
        headers: [{ name: x-header, value: { regex: "test-[0-9]" } }]
      backends: [{ host: "${host}" }]`),
  );
  const headers = { "x-header": "test-0" };
  assert.equal((await send("/match?param=hello", { headers })).status, 200);
  assert.equal((await send("/match?param=other", { headers })).status, 404);
  assert.equal((await send("/match?param=hello")).status, 404);
  assert.equal((await send("/match?param=hello", { headers, method: "POST" })).status, 404);
});

test("headers are changed, and path and host are rewritten", async (t) => {
  const backend = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies:
        requestHeaderModifier: { add: { x-req-added: value }, remove: [x-illegal-header] }
        responseHeaderModifier: { set: { x-resp-added: value } }
        urlRewrite: { path: { full: /new-path }, authority: { full: custom-host-header } }
      backends: [{ host: "${backend.host}" }]`),
  );
  const response = await send("/old", { headers: { "x-illegal-header": "1" } });
  assert.equal(response.headers.get("x-resp-added"), "value");
  const [received] = backend.received;
  assert.deepEqual(
    [received?.url, received?.headers.host, received?.headers["x-req-added"], received?.headers["x-illegal-header"]],
    ["/new-path", "custom-host-header", "value", undefined],
  );
});

test("a redirect has the status and the location", async (t) => {
  const { send } = await serving(
    t,
    bind(`
    - policies: { requestRedirect: { scheme: https, authority: { full: example.com }, status: 301 } }`),
  );
  const response = await send("/a?b=c");
  assert.deepEqual([response.status, response.headers.get("location")], [301, "https://example.com/a?b=c"]);
});

test("a CORS preflight gets the configured headers and no backend", async (t) => {
  const backend = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies: { cors: { allowOrigins: ["https://app.example"], allowHeaders: [header], allowMethods: [GET], maxAge: 100s } }
      backends: [{ host: "${backend.host}" }]`),
  );
  const response = await send("/", {
    method: "OPTIONS",
    headers: { origin: "https://app.example", "access-control-request-method": "GET" },
  });
  assert.equal(response.headers.get("access-control-allow-origin"), "https://app.example");
  assert.equal(response.headers.get("access-control-max-age"), "100");
  assert.equal(backend.received.length, 0);
});

test("a local rate limit rejects with 429 when the bucket is empty", async (t) => {
  const { host } = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies: { localRateLimit: [{ maxTokens: 2, tokensPerFill: 1, fillInterval: 3600s }] }
      backends: [{ host: "${host}" }]`),
  );
  const statuses = [await send("/"), await send("/"), await send("/")].map(({ status }) => status);
  assert.deepEqual(statuses, [200, 200, 429]);
});

test("a direct response has its body, and its header expressions are evaluated", async (t) => {
  const { send } = await serving(
    t,
    bind(`
    - policies: { directResponse: { status: 418, body: "hello!", headers: { x-kind: '"teapot"' } } }`),
  );
  const response = await send("/");
  assert.deepEqual([response.status, response.headers.get("x-kind"), await response.text()], [418, "teapot", "hello!"]);
});

test("a fault is injected for the requests that meet the condition", async (t) => {
  const { host } = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies:
        delay: { duration: 'request.headers["x-slow"] == "1" ? 1 : 0' }
        directResponse: { conditional: [{ condition: 'request.headers["x-chaos"] == "1"', status: 503, body: injected fault }] }
      backends: [{ host: "${host}" }]`),
  );
  const faulty = await send("/", { headers: { "x-chaos": "1", "x-slow": "1" } });
  assert.deepEqual([faulty.status, await faulty.text()], [503, "injected fault"]);
  assert.equal((await send("/", { headers: { "x-chaos": "0", "x-slow": "0" } })).status, 200);
});

test("listeners of one port are selected by host name", async (t) => {
  const { gateway } = await serving(
    t,
    `
binds:
- port: 0
  listeners:
  - { name: a, hostname: a.example, routes: [{ policies: { directResponse: { status: 200, body: a } } }] }
  - { name: b, hostname: "*.b.example", routes: [{ policies: { directResponse: { status: 200, body: b } } }] }
`,
  );
  const { request } = await import("node:http");
  const get = (host: string) =>
    new Promise<[number | undefined, string]>((resolve, reject) => {
      request({ port: gateway.port(), host: "127.0.0.1", headers: { host } }, (response) => {
        let text = "";
        response.on("data", (chunk: Buffer) => {
          text += chunk.toString();
        });
        response.on("end", () => resolve([response.statusCode, text]));
      })
        .on("error", reject)
        .end();
    });
  assert.deepEqual(await get("a.example"), [200, "a"]);
  assert.deepEqual(await get("x.b.example"), [200, "b"]);
  assert.equal((await get("c.example"))[0], 404);
});

test("several plain rules are alternatives, and a deny rule takes precedence", async (t) => {
  const { host } = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies:
        authorization:
          rules:
          - request.path == "/a"
          - request.path == "/b"
          - deny: request.headers["x-bad"] == "1"
      backends: [{ host: "${host}" }]`),
  );
  const ok = { headers: { "x-bad": "0" } };
  assert.equal((await send("/a", ok)).status, 200);
  assert.equal((await send("/b", ok)).status, 200);
  assert.equal((await send("/c", ok)).status, 403);
  assert.equal((await send("/a", { headers: { "x-bad": "1" } })).status, 403);
});

test("a strict JWT policy needs a token of the issuer and the audience", async (t) => {
  const { host } = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies: { jwtAuth: { mode: strict, issuer: "${ISSUER}", audiences: [gateway], jwks: { file: jwks.json } } }
      backends: [{ host: "${host}" }]`),
    KEYS_FILE,
  );
  const withToken = (text: string) => send("/", { headers: { authorization: `Bearer ${text}` } });
  assert.equal((await send("/")).status, 401);
  assert.equal((await withToken(token())).status, 200);
  assert.equal((await withToken(token({ aud: "another" }))).status, 401);
  assert.equal((await withToken(token({ iss: "https://evil.example" }))).status, 401);
});

test("a strict API key policy needs one of the keys", async (t) => {
  const { host } = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies: { apiKey: { mode: strict, keys: [{ key: sk-first-key, metadata: { user: one } }] } }
      backends: [{ host: "${host}" }]`),
  );
  assert.equal((await send("/")).status, 401);
  assert.equal((await send("/", { headers: { authorization: "Bearer sk-first-key" } })).status, 200);
});

test("basic authentication reads an htpasswd file", async (t) => {
  const { host } = await backendOf(t);
  const sha = createHash("sha1").update("open sesame").digest("base64");
  const { send } = await serving(
    t,
    bind(`
    - policies: { basicAuth: { mode: strict, htpasswd: { file: users }, realm: shop } }
      backends: [{ host: "${host}" }]`),
    { users: `alice:{SHA}${sha}\n` },
  );
  const refused = await send("/");
  assert.equal(refused.status, 401);
  assert.match(refused.headers.get("www-authenticate") ?? "", /^Basic realm="shop"/);
  const authorization = `Basic ${Buffer.from("alice:open sesame").toString("base64")}`;
  assert.equal((await send("/", { headers: { authorization } })).status, 200);
});

test("external authorization over HTTP decides by its status", async (t) => {
  const { host } = await backendOf(t);
  const service = await backendOf(t, (req, res) => {
    res.writeHead(req.headers.authorization === "Bearer good" ? 200 : 403).end("no");
  });
  const { send } = await serving(
    t,
    bind(`
    - policies: { extAuthz: { host: "${service.host}", protocol: { http: { path: '"/check"' } }, includeRequestHeaders: [authorization] } }
      backends: [{ host: "${host}" }]`),
  );
  assert.equal((await send("/", { headers: { authorization: "Bearer good" } })).status, 200);
  assert.equal((await send("/", { headers: { authorization: "Bearer bad" } })).status, 403);
});

test("retry attempts include the first", async (t) => {
  let calls = 0;
  const { host } = await backendOf(t, (_req, res) => {
    calls += 1;
    res.writeHead(503).end();
  });
  const { send } = await serving(
    t,
    bind(`
    - policies: { retry: { attempts: 3, codes: [503] } }
      backends: [{ host: "${host}" }]`),
  );
  assert.equal((await send("/")).status, 503);
  assert.equal(calls, 3);
});

test("a request that exceeds its timeout gets 504", async (t) => {
  const { host } = await backendOf(t, () => undefined);
  const { send } = await serving(
    t,
    bind(`
    - policies: { timeout: { requestTimeout: 50ms } }
      backends: [{ host: "${host}" }]`),
  );
  assert.equal((await send("/")).status, 504);
});

test("a mirror gets a copy, and its response is ignored", async (t) => {
  const { host } = await backendOf(t);
  let copied: (path: string) => void = () => undefined;
  const arrived = new Promise<string>((resolve) => {
    copied = resolve;
  });
  const mirror = await backendOf(t, (req, res) => {
    copied(req.url ?? "");
    res.writeHead(500).end();
  });
  const { send } = await serving(
    t,
    bind(`
    - policies: { requestMirror: { backend: { host: "${mirror.host}" }, percentage: 1 } }
      backends: [{ host: "${host}" }]`),
  );
  assert.equal((await send("/copied")).status, 200);
  assert.equal(await arrived, "/copied");
});

test("transformations set headers of the request and the response with expressions", async (t) => {
  const backend = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies: { transformations: { request: { set: { x-path: request.path } }, response: { set: { x-code: "string(response.code)" } } } }
      backends: [{ host: "${backend.host}" }]`),
  );
  const response = await send("/a");
  assert.equal(backend.received[0]?.headers["x-path"], "/a");
  assert.equal(response.headers.get("x-code"), "200");
});

test("the key of `backendAuth` replaces the client's credential", async (t) => {
  const backend = await backendOf(t);
  const { send } = await serving(
    t,
    bind(`
    - policies: { backendAuth: { key: backend-key } }
      backends: [{ host: "${backend.host}" }]`),
  );
  await send("/", { headers: { authorization: "Bearer client" } });
  assert.equal(backend.received[0]?.headers.authorization, "Bearer backend-key");
});

test("token exchange sends the issued token to the backend", async (t) => {
  const backend = await backendOf(t);
  let form = new URLSearchParams();
  const server = await backendOf(t, (req, res) => {
    let body = "";
    req.on("data", (chunk: Buffer) => {
      body += chunk.toString();
    });
    req.on("end", () => {
      form = new URLSearchParams(body);
      res.setHeader("content-type", "application/json");
      res.end(JSON.stringify({ access_token: "exchanged", token_type: "Bearer", expires_in: 300 }));
    });
  });
  const { send } = await serving(
    t,
    bind(`
    - backends:
      - host: "${backend.host}"
        policies:
          backendAuth:
            oauthTokenExchange:
              host: "${server.host}"
              path: /token
              audiences: [shop]
              clientAuth: { clientId: gateway, clientSecret: secret }`),
  );
  assert.equal((await send("/", { headers: { authorization: "Bearer client-token" } })).status, 200);
  assert.equal(form.get("grant_type"), "urn:ietf:params:oauth:grant-type:token-exchange");
  assert.deepEqual([form.get("subject_token"), form.get("audience")], ["client-token", "shop"]);
  assert.equal(backend.received[0]?.headers.authorization, "Bearer exchanged");
});

test("an LLM route overrides the model, adds prompts, and rejects what its guard finds", async (t) => {
  const upstream = await startUpstream();
  t.after(() => upstream.close());
  const { send } = await serving(
    t,
    bind(`
    - backends:
      - ai: { name: openai, provider: { openAI: { model: gpt-4o-mini } }, hostOverride: "${upstream.host}" }
      policies:
        backendAuth: { key: provider-key }
        ai:
          routes: { /v1/chat/completions: completions }
          prompts: { append: [{ role: system, content: Respond with emojis only }] }
          promptGuard:
            request:
            - regex: { action: reject, rules: [{ pattern: SSN }] }
              rejection: { status: 400, body: '{"error":{"message":"Request rejected"}}' }`),
  );
  const ask = (content: string) =>
    send("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "any", messages: [{ role: "user", content }] }),
    });
  assert.equal((await ask("hello")).status, 200);
  const { headers, body } = upstream.last();
  const sent = (typeof body === "string" ? JSON.parse(body) : body) as {
    model: string;
    messages: { content: string }[];
  };
  assert.equal(headers.authorization, "Bearer provider-key");
  assert.equal(sent.model, "gpt-4o-mini");
  assert.deepEqual(
    sent.messages.map(({ content }) => content),
    ["hello", "Respond with emojis only"],
  );
  const rejected = await ask("my SSN is 1");
  assert.equal(rejected.status, 400);
  assert.match(await rejected.text(), /Request rejected/);
});

test("MCP rules are alternatives for each tool: the others are hidden and cannot be called", async (t) => {
  const server = await startRecordingServer("legacy");
  t.after(() => server.close());
  const { gateway } = await serving(
    t,
    bind(`
    - policies: { mcpAuthorization: { rules: ['mcp.tool.name == "echo"', 'mcp.tool.name == "other"'] } }
      backends: [{ mcp: { targets: [{ name: one, mcp: { host: "${server.url}" } }] } }]`),
  );
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const { message } = await client.post({ jsonrpc: "2.0", id: 1, method: "tools/list" });
  assert.deepEqual(
    message.result.tools.map(({ name }: { name: string }) => name),
    ["echo"],
  );
  const refused = await client.post({ jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "secret_tool" } });
  assert.ok(refused.message.error !== undefined);
});

test("the credential of `backendAuth` also reaches MCP servers", async (t) => {
  const server = await startRecordingServer("legacy");
  t.after(() => server.close());
  const { gateway } = await serving(
    t,
    bind(`
    - policies: { backendAuth: { key: server-key } }
      backends: [{ mcp: { targets: [{ name: one, mcp: { host: "${server.url}" } }] } }]`),
  );
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  await client.post({ jsonrpc: "2.0", id: 1, method: "tools/list" }, { authorization: "Bearer of-the-client" });
  assert.ok(server.received.length > 0);
  for (const { headers } of server.received) assert.equal(headers.authorization, "Bearer server-key");
});

test("a passed-through token is the one that the policy verified", async (t) => {
  const server = await startRecordingServer("legacy");
  t.after(() => server.close());
  const { gateway } = await serving(
    t,
    bind(`
    - policies:
        jwtAuth: { mode: strict, issuer: "${ISSUER}", audiences: [gateway], jwks: { file: jwks.json } }
        backendAuth: { passthrough: {} }
      backends: [{ mcp: { targets: [{ name: one, mcp: { host: "${server.url}" } }] } }]`),
    KEYS_FILE,
  );
  const authorization = `Bearer ${token()}`;
  const response = await fetch(`${gateway.url()}/mcp`, {
    method: "POST",
    headers: { authorization, "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "c", version: "1" } },
    }),
  });
  assert.equal(response.status, 200);
  await response.text();
  assert.equal(server.received[0]?.headers.authorization, authorization);
});

test("MCP guardrails reject requests with status 200, and change lists", async (t) => {
  const server = await startRecordingServer("legacy");
  t.after(() => server.close());
  const service = await startPolicyService(({ phase, body }) =>
    phase === "request" ? rejected("denied") : mutated({ tools: body.tools.slice(0, 1) }),
  );
  t.after(() => service.close());
  const { gateway } = await serving(
    t,
    bind(`
    - policies:
        mcpGuardrails:
          processors:
          - kind: remote
            host: ${service.host}
            methods: { "tools/call": request, "*/list": response }
            failureMode: failClosed
      backends:
      - mcp: { targets: [{ name: one, mcp: { host: "${server.url}" } }] }`),
  );
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  assert.equal((await client.request("tools/list")).result.tools.length, 1);
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo" } };
  const { status, message } = await client.post(call);
  assert.deepEqual([status, message.error], [200, { code: -32001, message: "denied" }]);
  assert.ok(!server.received.some(({ body }) => body.includes("tools/call")));
});
