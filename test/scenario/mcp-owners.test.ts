/** Decisions, "MCP sessions": no two users share a session or a process, whatever their credentials lack. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernCall, modernPost } from "../support/mcp/modern-client.ts";
import { startRecordingServer } from "../support/mcp/recording-server.ts";
import { gatewayFor } from "../support/scenario.ts";

const key = createSigningKey("ES256", "k");
const ISSUER = "https://issuer.example";

function token(claims: Record<string, unknown>): string {
  const base = { iss: ISSUER, aud: "mcp", exp: Math.floor(Date.now() / 1000) + 86_400 };
  return signToken({ key, claims: { ...base, ...claims } });
}

const JWT = { jwtAuth: { issuer: ISSUER, audiences: ["mcp"], jwks: JSON.stringify(keySetOf(key)) } };
const KEYS = { apiKey: { keys: [{ key: "key-of-alice-1" }, { key: "key-of-carol-2" }] } };
const SAME_METADATA = {
  apiKey: { keys: ["key-of-alice-1", "key-of-carol-2"].map((one) => ({ key: one, metadata: { team: "a" } })) },
};

const pairs: readonly { name: string; policies: object; alice: string; carol: string }[] = [
  { name: "tokens with a subject", policies: JWT, alice: token({ sub: "alice" }), carol: token({ sub: "carol" }) },
  {
    name: "tokens without a subject, of one client",
    policies: JWT,
    alice: token({ azp: "app", jti: "1" }),
    carol: token({ azp: "app", jti: "2" }),
  },
  // An ECDSA signature differs each time: these are two tokens with the same claims.
  { name: "tokens with the same claims", policies: JWT, alice: token({ azp: "app" }), carol: token({ azp: "app" }) },
  { name: "tokens with an empty subject", policies: JWT, alice: token({ sub: "" }), carol: token({ sub: "" }) },
  { name: "tokens with a number as subject", policies: JWT, alice: token({ sub: 7 }), carol: token({ sub: 7 }) },
  { name: "API keys without metadata", policies: KEYS, alice: "key-of-alice-1", carol: "key-of-carol-2" },
  { name: "API keys of one team", policies: SAME_METADATA, alice: "key-of-alice-1", carol: "key-of-carol-2" },
];

for (const { name, policies, alice, carol } of pairs) {
  test(`${name}: two users share neither a session nor a process`, async (t) => {
    const gateway = await gatewayFor(t, mcpConfig([oddTarget()], {}, { policies }));
    const url = `${gateway.url()}/mcp`;
    const as = (credential: string) => ({ authorization: `Bearer ${credential}` });
    const client = rawClient(url);
    const pidOf = async (credential: string): Promise<string> => {
      const text = await modernCall(url, "state", {}, { headers: as(credential) });
      return String(JSON.parse(text).pid);
    };
    assert.equal(await pidOf(alice), await pidOf(alice));
    assert.notEqual(await pidOf(alice), await pidOf(carol));

    const initialize = {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: client.version, capabilities: {}, clientInfo: { name: "t", version: "1" } },
    };
    const opened = await client.post(initialize, as(alice));
    client.sessionId = opened.headers.get("mcp-session-id") ?? undefined;
    const ping = { jsonrpc: "2.0", id: 2, method: "ping" };
    assert.equal((await client.post(ping, as(alice))).status, 200);
    assert.equal((await client.post(ping, as(carol))).status, 404);
    assert.equal((await client.post(ping, as(alice))).status, 200);
  });
}

test("clients of a shared server cannot see one another's tasks", async (t) => {
  const server = await startRecordingServer("legacy");
  t.after(() => server.close());
  const gateway = await gatewayFor(t, mcpConfig([{ name: "all", mcp: { url: server.url }, shared: true }]));
  const url = `${gateway.url()}/mcp`;
  const client = rawClient(url);
  assert.equal((await client.initialize()).message.result.capabilities.tasks, undefined);
  for (const method of ["tasks/list", "tasks/get", "tasks/result", "tasks/cancel"]) {
    assert.equal((await client.request(method, { taskId: "1" })).error.code, -32601, method);
    assert.equal((await modernPost(url, method, { taskId: "1" })).message.error.code, -32601, method);
  }
  assert.ok(server.received.every(({ body }) => !body.includes("tasks/")));
});

test("a refreshed token keeps its session", async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()], {}, { policies: JWT }));
  const url = `${gateway.url()}/mcp`;
  const pids = await Promise.all(
    ["1", "2"].map((jti) =>
      modernCall(url, "state", {}, { headers: { authorization: `Bearer ${token({ sub: "alice", jti })}` } }),
    ),
  );
  assert.equal(new Set(pids.map((text) => JSON.parse(text).pid)).size, 1);
});

test("without authentication a session belongs to whoever knows its id, whatever headers come later", async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const ping = { jsonrpc: "2.0", id: 2, method: "ping" };
  for (const headers of [{}, { authorization: "Bearer a" }, { authorization: "Bearer b" }, { "x-api-key": "c" }])
    assert.equal((await client.post(ping, headers as Record<string, string>)).status, 200, JSON.stringify(headers));
});
