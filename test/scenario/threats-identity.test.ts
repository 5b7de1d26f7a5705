/**
 * Attacks on authentication over real sockets: hostile credentials, keys that a token brings along, tokens that expire
 * during a session, and session ids.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../support/fake-clock.ts";
import {
  DEMO_TARGET,
  initialize,
  type ProtectedGateway,
  startProtectedGateway,
} from "../support/identity/protected-gateway.ts";
import { createSigningKey, keySetOf, publicJwk, START_MS, signToken } from "../support/identity/tokens.ts";
import { rawRequest } from "../support/raw-client.ts";

const ISSUER = "http://localhost:8080/realms/mcp";
const key = createSigningKey("ES256", "k1");
const stranger = createSigningKey("ES256", "k1");
const clock = fakeClock();

async function protectedGateway(t: TestContext): Promise<ProtectedGateway> {
  const opened = await startProtectedGateway(
    (origin) => `
gateways: { default: { port: 0 } }
routes:
  - backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
    policies:
      mcpAuthentication:
        issuer: ${ISSUER}
        audiences: [gateway]
        jwks: ./jwks.json
        resourceMetadata: { resource: ${origin}/mcp }
`,
    { files: { "jwks.json": JSON.stringify(keySetOf(key)) }, clock },
  );
  t.after(() => opened.close());
  return opened;
}

function claims(more: Record<string, unknown> = {}): Record<string, unknown> {
  return { iss: ISSUER, aud: "gateway", sub: "alice", exp: clock.now() / 1000 + 300, ...more };
}

const HOSTILE = [
  "' OR '1'='1",
  "x'; DROP TABLE keys; --",
  "${jndi:ldap://127.0.0.1:1/a}",
  "{{7*7}}",
  "../../etc/passwd",
  "%00",
  "\u00f0\u009f\u0098\u0080",
  "a".repeat(15_000),
  `${"e30.".repeat(3_000)}`,
  "__proto__",
];

test("hostile credentials are a plain 401, and no part of them is in the answer or the log [V2]", async (t) => {
  const { gateway } = await protectedGateway(t);
  for (const [i, hostile] of HOSTILE.entries()) {
    const text = `${hostile}-mark${i}x`;
    const answer = await rawRequest(
      gateway.port(),
      Buffer.from(
        `POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\nAuthorization: Bearer ${text}\r\n\r\n`,
        "latin1",
      ),
    );
    assert.equal(answer.status, 401, hostile.slice(0, 40));
    assert.doesNotMatch(answer.text, /-mark\d|^\s+at |node:/m);
  }
  assert.doesNotMatch(gateway.log().join("\n"), /-mark\d|DROP TABLE|jndi/);
  // What a header cannot hold does not get that far.
  const nul = await rawRequest(gateway.port(), "POST /mcp HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\0b\r\n\r\n");
  assert.equal(nul.status, 400);
});

test("keys and key addresses in a token are never used or fetched [A2]", async (t) => {
  let hits = 0;
  const sink = createServer((_request, response) => {
    hits += 1;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(keySetOf(stranger)));
  });
  sink.on("connection", () => {
    hits += 1;
  });
  await new Promise<void>((resolve) => sink.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    sink.close();
    sink.closeAllConnections();
  });
  const at = `http://127.0.0.1:${(sink.address() as AddressInfo).port}/keys`;
  const { request } = await protectedGateway(t);
  const headers: Record<string, unknown>[] = [
    { jku: at },
    { x5u: at },
    { jku: at, kid: at },
    { jwk: publicJwk(stranger) },
    { x5c: ["MIIB"], "x5t#S256": "x" },
    { kid: "../../../../dev/null" },
    { iss: at, jku: at, jwk: publicJwk(stranger), x5u: at },
  ];
  for (const header of headers) {
    const token = signToken({ key: stranger, claims: claims({ jku: at, iss: ISSUER }), header });
    assert.equal((await request("/mcp", initialize(token))).status, 401, JSON.stringify(header));
  }
  assert.equal(hits, 0);
  assert.equal(
    (await request("/mcp", initialize(signToken({ key, claims: claims(), header: { jku: at } })))).status,
    200,
  );
  assert.equal(hits, 0, "nor where the token is good without it");
});

test("a token that expires during a session is refused at the next request, and a new one goes on with it [A9] [A10]", async (t) => {
  const { request } = await protectedGateway(t);
  const short = signToken({ key, claims: claims({ exp: clock.now() / 1000 + 30 }) });
  const opened = await request("/mcp", initialize(short));
  assert.equal(opened.status, 200);
  await opened.text();
  const session = opened.headers.get("mcp-session-id") ?? "";
  assert.match(session, /^[0-9a-f]{32}\.[!-~]{22,}$/, "128 random bits and a signature, in printable characters");
  const ping = async (token: string): Promise<number> => {
    const response = await request("/mcp", {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        authorization: `Bearer ${token}`,
        "mcp-session-id": session,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 2, method: "ping" }),
    });
    await response.text();
    return response.status;
  };
  assert.equal(await ping(short), 200);
  await clock.advance(91_000);
  assert.equal(await ping(short), 401);
  assert.equal(await ping(signToken({ key, claims: claims({ sub: "mallory" }) })), 404);
  assert.equal(await ping(signToken({ key, claims: claims() })), 200);
  assert.ok(clock.now() > START_MS);
});

test("session ids share nothing that helps to guess one [A10]", async (t) => {
  const { request } = await protectedGateway(t);
  const ids = new Set<string>();
  for (let i = 0; i < 8; i++) {
    const opened = await request("/mcp", initialize(signToken({ key, claims: claims() })));
    await opened.text();
    ids.add(opened.headers.get("mcp-session-id") ?? "");
  }
  assert.equal(ids.size, 8);
  // No place of what is random, or of the signature over it, has the same character in all: neither a counter's beginning
  // nor a time stands there. What stands between them is the client's own `initialize`.
  for (const part of [0, -1]) {
    const parts = [...ids].map((id) => id.split(".").at(part) ?? "");
    const fixed = [...(parts[0] ?? "")].filter((character, at) => parts.every((one) => one[at] === character));
    assert.ok((parts[0] ?? "").length >= 22 && fixed.length < 4, `${fixed.length} characters are the same in all ids`);
  }
});
