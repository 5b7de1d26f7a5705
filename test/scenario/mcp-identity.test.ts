/** `targets[].mcp.identity`: a server learns who the caller is, by a token, an exchanged token or headers. */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";
import { rawClient } from "../support/mcp/client.ts";

const ISSUER = "http://127.0.0.1:9/issuer";
const key = createSigningKey("ES256", "k1");

function tokenOf(sub: string, more: object = {}): string {
  const exp = Math.floor(Date.now() / 1000) + 86_400;
  return signToken({ key, claims: { iss: ISSUER, aud: "gateway", sub, exp, ...more } });
}

/** An MCP server that tells what headers it got, and a token endpoint that exchanges. */
async function startServer(t: TestContext) {
  const exchanges: URLSearchParams[] = [];
  const seen: IncomingMessage["headers"][] = [];
  const state = { exchanges, seen, url: "", fails: false };
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      const json = (status: number, value: object): void => {
        res.writeHead(status, { "content-type": "application/json" });
        res.end(JSON.stringify(value));
      };
      if (req.url === "/token") {
        const form = new URLSearchParams(body);
        exchanges.push(form);
        const payload = (form.get("subject_token") ?? "").split(".")[1] ?? "";
        const { sub } = JSON.parse(Buffer.from(payload, "base64url").toString());
        if (state.fails) json(400, { error: "invalid_target" });
        else json(200, { access_token: `exchanged-${sub}-${exchanges.length}`, token_type: "Bearer", expires_in: 300 });
        return;
      }
      if (req.method !== "POST") {
        res.writeHead(405).end();
        return;
      }
      seen.push(req.headers);
      const { id, method, params } = JSON.parse(body);
      if (id === undefined) res.writeHead(202).end();
      else if (method === "initialize")
        json(200, {
          jsonrpc: "2.0",
          id,
          result: {
            protocolVersion: params.protocolVersion,
            capabilities: { tools: {} },
            serverInfo: { name: "s", version: "1" },
          },
        });
      else
        json(200, {
          jsonrpc: "2.0",
          id,
          result: { content: [{ type: "text", text: `${req.headers.authorization} ${req.headers["x-user"]}` }] },
        });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return state;
}

function config(url: string, identity: object, policies: object = {}): string {
  return JSON.stringify({
    config: { logging: { level: "info,access=off" } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        name: "tools",
        policies: { jwtAuth: { issuer: ISSUER, audiences: ["gateway"], jwks: { inline: keySetOf(key) } }, ...policies },
        backends: [{ mcp: { targets: [{ name: "srv", mcp: { url: `${url}/mcp`, identity } }] } }],
      },
    ],
  });
}

async function opened(gateway: TestGateway, token: () => string, more: Record<string, string> = {}) {
  const client = rawClient(`${gateway.url()}/mcp`);
  const { post } = client;
  client.post = (body, headers = {}) => post(body, { authorization: `Bearer ${token()}`, ...more, ...headers });
  await client.initialize();
  return client;
}

const exchange = (url: string): object => ({
  tokenUrl: `${url}/token`,
  clientId: "gateway",
  clientSecret: "s",
  audience: "srv",
  scopes: ["read"],
});

test("a token is exchanged for each user's own token, once, and never used for another", async (t) => {
  const server = await startServer(t);
  const gateway = await startGateway(
    config(server.url, { exchange: exchange(server.url), headers: { "x-user": "jwt.sub" } }),
  );
  t.after(() => gateway.close());
  const tokens = { alice: tokenOf("alice"), bob: tokenOf("bob") };
  // The client's own header of the name never passes.
  const alice = await opened(gateway, () => tokens.alice, { "x-user": "root" });
  const bob = await opened(gateway, () => tokens.bob);
  const said = async (client: typeof alice) => (await client.call("x")).result.content[0].text;
  assert.match(await said(alice), /^Bearer exchanged-alice-1 alice$/);
  assert.match(await said(bob), /^Bearer exchanged-bob-2 bob$/);
  assert.match(await said(alice), /^Bearer exchanged-alice-1 alice$/);
  assert.equal(server.exchanges.length, 2);
  const [form] = server.exchanges;
  assert.equal(form?.get("grant_type"), "urn:ietf:params:oauth:grant-type:token-exchange");
  assert.equal(form?.get("subject_token"), tokens.alice);
  assert.equal(form?.get("subject_token_type"), "urn:ietf:params:oauth:token-type:access_token");
  assert.deepEqual([form?.get("audience"), form?.get("scope")], ["srv", "read"]);
  // A renewed token of hers, with another exchange, in the same session.
  tokens.alice = tokenOf("alice", { jti: "2" });
  assert.match(await said(alice), /^Bearer exchanged-alice-3 alice$/);
  // Her session id with his token is nobody's.
  const thief = rawClient(`${gateway.url()}/mcp`);
  thief.sessionId = alice.sessionId;
  const stolen = await thief.post(
    { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "x" } },
    { authorization: `Bearer ${tokens.bob}` },
  );
  assert.equal(stolen.status, 404);
  for (const headers of server.seen) assert.ok(!(headers.authorization ?? "").includes(tokens.bob.slice(0, 20)));
});

test("a failed exchange is an error, and neither token reaches the server", async (t) => {
  const server = await startServer(t);
  server.fails = true;
  const gateway = await startGateway(config(server.url, { exchange: exchange(server.url) }));
  t.after(() => gateway.close());
  const answer = await rawClient(`${gateway.url()}/mcp`).post(
    {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    },
    { authorization: `Bearer ${tokenOf("alice")}` },
  );
  assert.match(answer.text, /the token exchange failed/);
  assert.equal(server.seen.length, 0);
  assert.ok(gateway.log().some((line) => line.includes("invalid_target")));
  assert.ok(!gateway.log().some((line) => line.includes("subject_token=")));
});

test("the caller's own token, only the one that was verified", async (t) => {
  const server = await startServer(t);
  const gateway = await startGateway(config(server.url, { token: true }));
  t.after(() => gateway.close());
  const token = tokenOf("alice");
  const alice = await opened(gateway, () => token);
  assert.equal((await alice.call("x")).result.content[0].text, `Bearer ${token} undefined`);
});

test("with API keys there is no token to pass: the key never reaches the server", async (t) => {
  const server = await startServer(t);
  const text = config(server.url, { token: true }).replace(
    /"jwtAuth":\{.*?\]\}\}\}/,
    '"apiKey":{"keys":[{"key":"key-of-alice"}]}',
  );
  const gateway = await startGateway(text);
  t.after(() => gateway.close());
  const answer = await rawClient(`${gateway.url()}/mcp`).post(
    {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    },
    { authorization: "Bearer key-of-alice" },
  );
  assert.match(answer.text, /the token exchange failed/);
  assert.equal(server.seen.length, 0);
});

for (const [what, change, problem] of [
  [
    "a route without authentication",
    (text: string) => text.replace(/"policies":\{.*?\]\}\}\}\},/, ""),
    /authentication policy/,
  ],
  ["a shared target", (text: string) => text.replace('"name":"srv"', '"name":"srv","shared":true'), /no single caller/],
  ["two tokens", (text: string) => text.replace('"identity":{', '"identity":{"token":true,'), /only one of/],
  [
    "a header that clients set",
    (text: string) => text.replace('"identity"', '"forwardHeaders":["authorization"],"identity"'),
    /forwardHeaders/,
  ],
  [
    "a header that clients set in another spelling",
    (text: string) =>
      text.replace('"identity":{', '"forwardHeaders":["x_user"],"identity":{"headers":{"x-user":"jwt.sub"},'),
    /forwardHeaders/,
  ],
  ["an exchange for everything", (text: string) => text.replace('"audience":"srv",', ""), /audience/],
] as const)
  test(`${what} stops the load`, async () => {
    await assert.rejects(
      startGateway(change(config("http://127.0.0.1:9", { exchange: exchange("http://127.0.0.1:9") }))),
      problem,
    );
  });
