import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { DEMO_TARGET } from "../support/identity/protected-gateway.ts";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";
import { assertGolden, messagesOf, traceOf, typesOf } from "../support/trace.ts";

const key = createSigningKey("ES256", "k1");
const ISSUER = "http://idp.test/realms/mcp";
let backend: TestBackend;
let gateway: TestGateway;

function token(claims: Record<string, unknown>): string {
  return signToken({ key, claims: { iss: ISSUER, aud: "gateway", sub: "ada", exp: 4_000_000_000, ...claims } });
}

before(async () => {
  backend = await startBackend((_req, res) => {
    res.writeHead(200, { "content-length": "2", date: "Thu, 01 Jan 2026 00:00:00 GMT" });
    res.end("ok");
  });
  gateway = await startGateway(
    `
gateways: { default: { port: 0 } }
routes:
  - name: tools
    backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
  - name: guarded
    matches: [{ path: { pathPrefix: /guarded } }]
    backends: [{ host: "${backend.host}" }]
    policies:
      jwtAuth: { mode: strict, issuer: "${ISSUER}", audiences: [gateway], jwks: { file: keys.json } }
      authorization: { rules: ['"admin" in jwt.roles'] }
  - name: limited
    matches: [{ path: { pathPrefix: /limited } }]
    backends: [{ host: "${backend.host}" }]
    policies: { rateLimit: { local: [{ requests: 1, unit: Hours }] } }
  - name: models
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
`,
    { files: { "keys.json": JSON.stringify(keySetOf(key)) } },
  );
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url()}${path}`, { headers }).then((response) => response.text());

test("a request without a token is refused by authentication, before the route phase ends", async () => {
  const events = await traceOf(gateway, () => get("/guarded"));
  const refused = messagesOf(events, "policy").at(-1);
  assert.deepEqual([refused?.kind, refused?.result], ["jwtAuth", "refused"]);
  assert.ok(!typesOf(events).includes("requestSnapshot route policies"));
  assertGolden("refused-without-token", events);
});

test("a token that fails says which check, and the token itself is nowhere", async () => {
  const bad = token({ aud: "other" });
  const events = await traceOf(gateway, () => get("/guarded", { authorization: `Bearer ${bad}` }));
  const refused = messagesOf(events, "policy").at(-1);
  assert.match(refused?.details ?? "", /audience/);
  assert.ok(!JSON.stringify(events).includes(bad));
  assertGolden("refused-bad-token", events);
});

test("a denied request names the rule and the value that it saw [S2.3-3]", async () => {
  const events = await traceOf(gateway, () =>
    get("/guarded", { authorization: `Bearer ${token({ roles: ["dev"] })}` }),
  );
  const refused = messagesOf(events, "policy").at(-1);
  assert.deepEqual([refused?.kind, refused?.result], ["authorization", "refused"]);
  assert.match(refused?.details ?? "", /"admin" in jwt\.roles.*\["dev"\]/);
  assert.deepEqual(messagesOf(events, "cel")[0]?.result, { value: false });
  assertGolden("refused-by-authorization", events);
});

test("explain tells of the denial in one sentence", async () => {
  await get("/guarded", { authorization: `Bearer ${token({ roles: ["dev"] })}`, "x-request-id": "denied-1" });
  const response = await fetch(`${gateway.adminUrl}/debug/requests?id=denied-1`);
  const [{ story }] = ((await response.json()) as { requests: [{ story: string[] }] }).requests;
  assert.match(
    story.join("\n"),
    /^Denied by `authorization` of route `guarded` \(403\): .*"admin" in jwt\.roles.*\["dev"\]/m,
  );
});

test("an admitted request shows its claims and every policy that ran [S1-4]", async () => {
  const events = await traceOf(gateway, () =>
    get("/guarded", { authorization: `Bearer ${token({ roles: ["admin"] })}` }),
  );
  assert.deepEqual(
    messagesOf(events, "policy").map(({ kind, result }) => `${kind} ${result}`),
    ["jwtAuth applied", "authorization applied"],
  );
  assertGolden("admitted", events);
});

test("a limited request names the limit", async () => {
  await get("/limited");
  const events = await traceOf(gateway, () => get("/limited"));
  const refused = messagesOf(events, "policy").find(({ result }) => result === "refused");
  assert.deepEqual([refused?.kind, refused?.moment, refused?.result], ["rateLimit", "admit", "refused"]);
  assert.equal(messagesOf(events, "requestFinished")[0]?.status, 429);
  assertGolden("refused-by-limit", events);
});

test("an MCP call shows its method, its tool and the process that it goes to", async () => {
  const post = (body: object, headers: Record<string, string> = {}) =>
    fetch(`${gateway.url()}/mcp`, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
      body: JSON.stringify({ jsonrpc: "2.0", ...body }),
    });
  const clientInfo = { name: "test", version: "1" };
  const opened = await post({
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo },
  });
  await opened.text();
  const session = { "mcp-session-id": opened.headers.get("mcp-session-id") ?? "" };
  await post({ method: "notifications/initialized" }, session).then((response) => response.text());
  const events = await traceOf(gateway, () =>
    post({ id: 2, method: "tools/call", params: { name: "echo", arguments: { message: "hi" } } }, session).then(
      (response) => response.text(),
    ),
  );
  const mcp = messagesOf(events, "policyEvent").find(({ kind }) => kind === "mcp");
  assert.equal(mcp?.details.methodName, "tools/call");
  assert.match(messagesOf(events, "backendCallStart")[0]?.target ?? "", /^stdio:/);
  assertGolden("mcp-call", events);
});

test("an LLM stream shows provider, model and what was used", async () => {
  const events = await traceOf(gateway, () =>
    fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "demo", stream: true, messages: [{ role: "user", content: "Hello" }] }),
    }).then((response) => response.text()),
  );
  const usage = messagesOf(events, "policyEvent").find(({ kind }) => kind === "llmUsage");
  assert.ok(Number(usage?.details.totalTokens) > 0, JSON.stringify(usage));
  assert.equal(usage?.details.provider, "demo");
  assertGolden("llm-stream", events);
});
