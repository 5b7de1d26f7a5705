/**
 * Servers other than the gateway do not get the credentials of clients: mirrors get the request that the backend gets,
 * and no service of a policy gets the cookie of a browser session.
 */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders } from "node:http";
import { type TestContext, test } from "node:test";
import { startAuthService } from "../support/ext-authz/service.ts";
import { startProcessor } from "../support/ext-proc/service.ts";
import { createSigningKey, keySetOf } from "../support/identity/tokens.ts";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { startPolicyService } from "../support/mcp-guardrails/service.ts";
import { backendFor, eventually, gatewayFor } from "../support/scenario.ts";

const KEY = "key-of-the-client-0123456789";
const OWN_COOKIE = "gateway_session_a13d27c7=value-of-the-session";
const COOKIE = `theme=dark; ${OWN_COOKIE}; __Host-${OWN_COOKIE}; lang=en`;

const header = { authorization: `Bearer ${KEY}` };
const keys = [{ key: KEY }];
const basic = { authorization: `Basic ${Buffer.from("ann:secret-of-ann").toString("base64")}` };
const htpasswd = "ann:{SHA}mWbJWIKCmMCL2cETskJwUrPlG0c=";

interface Case {
  readonly policies: object;
  readonly headers?: Readonly<Record<string, string>>;
  readonly query?: string;
}

const CASES: Readonly<Record<string, Case>> = {
  "without authentication": { policies: {}, headers: header },
  "an API key": { policies: { apiKey: { keys } }, headers: header },
  "an API key in a header of its own": {
    policies: { apiKey: { keys, location: { header: { name: "x-key" } } } },
    headers: { ...header, "x-key": KEY },
  },
  "an API key in the query": {
    policies: { apiKey: { keys, location: { queryParameter: { name: "key" } } } },
    query: `?a=1&key=${KEY}&b=2`,
  },
  "a password": { policies: { basicAuth: { htpasswd } }, headers: basic },
  "an API key that the backend gets": {
    policies: { apiKey: { keys }, backendAuth: { passthrough: {} } },
    headers: header,
  },
  "a credential of the gateway": { policies: { apiKey: { keys }, backendAuth: { key: "own" } }, headers: header },
};

for (const scope of ["route", "backend"])
  test(`a mirror of the ${scope} gets the request that the backend gets [A34]`, async (t) => {
    const backend = await backendFor(t);
    const mirror = await backendFor(t);
    const copies = { requestMirror: [{ host: mirror.host }] };
    const routes = Object.values(CASES).map(({ policies }, i) => ({
      matches: [{ path: { pathPrefix: `/${i}` } }],
      policies: scope === "route" ? { ...policies, ...copies } : policies,
      backends: [{ host: backend.host, ...(scope === "backend" ? { policies: copies } : {}) }],
    }));
    const gateway = await gatewayFor(t, JSON.stringify({ gateways: { default: { port: 0 } }, routes }));
    for (const [i, [name, { headers, query = "" }]] of Object.entries(CASES).entries()) {
      const response = await fetch(`${gateway.url()}/${i}${query}`, { headers: { ...headers, cookie: COOKIE } });
      assert.equal(response.status, 200, name);
      await eventually("the request was copied", () => mirror.received.length > i);
      const [sent, copy] = [backend.received[i], mirror.received[i]];
      assert.equal(copy?.url, sent?.url, name);
      assert.deepEqual(withoutConnection(copy?.headers), withoutConnection(sent?.headers), name);
      assert.equal(copy?.headers.cookie, "theme=dark; lang=en", name);
    }
  });

function withoutConnection({ connection: _, ...headers }: IncomingHttpHeaders = {}): IncomingHttpHeaders {
  return headers;
}

async function cookieAt(t: TestContext, policies: object, seen: () => string | undefined): Promise<string | undefined> {
  const { host } = await backendFor(t);
  const routes = [{ policies, backends: [{ host }] }];
  const gateway = await gatewayFor(t, JSON.stringify({ gateways: { default: { port: 0 } }, routes }));
  const response = await fetch(gateway.url(), { headers: { cookie: COOKIE } });
  assert.equal(response.status, 200);
  return seen();
}

test("no service of a policy gets the cookie of a browser session [A34]", async (t) => {
  const http = await backendFor(t);
  const authz = await startAuthService(() => ({ status: { code: 0 } }));
  const processor = await startProcessor();
  const guardrail = await startPolicyService();
  const server = await startToolsServer([{ name: "echo", inputSchema: { type: "object" } }]);
  for (const { close } of [authz, processor, guardrail, server]) t.after(() => close());
  const seen: Record<string, string | undefined> = {
    "extAuthz over HTTP": await cookieAt(
      t,
      { extAuthz: { url: `http://${http.host}`, timeout: "30s" } },
      () => http.received[0]?.headers.cookie,
    ),
    "extAuthz over gRPC": await cookieAt(
      t,
      { extAuthz: { host: authz.host, timeout: "30s" } },
      () => authz.checks[0]?.attributes.request.http.headers.cookie,
    ),
    extProc: await cookieAt(
      t,
      { extProc: { host: processor.host, timeout: "30s" } },
      () => processor.received[0]?.headers.cookie,
    ),
  };
  const processors = [{ host: guardrail.host, methods: { "tools/list": "request" }, timeout: "30s" }];
  const config = mcpConfig(
    [{ name: "one", mcp: { url: server.url } }],
    {},
    { policies: { mcpGuardrails: { processors } } },
  );
  const gateway = await gatewayFor(t, config);
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  await client.post({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} }, { cookie: COOKIE });
  seen.mcpGuardrails = guardrail.received[0]?.headers.find((line) => line.startsWith("cookie"));
  for (const [service, cookie = ""] of Object.entries(seen)) {
    assert.match(cookie, /theme=dark; lang=en$/, service);
    assert.doesNotMatch(cookie, /gateway_/, service);
  }
});

/** Wrong credentials of a permissive policy, where the client sends them. */
const WRONG: readonly [name: string, policies: object, query: string, headers: Readonly<Record<string, string>>][] = (
  [
    ["malformed", "wrong"],
    [
      "forged",
      `${encoded({ alg: "ES256", kid: "one" })}.${encoded({ iss: "https://id.example.com", sub: "ann" })}.AAAA`,
    ],
    ["unsigned", `${encoded({ alg: "none" })}.${encoded({ iss: "https://id.example.com", sub: "ann" })}.`],
  ] as const
).flatMap(([kind, token]) => [
  [kind, jwtAuthAt(undefined), "", { authorization: `Bearer ${token}` }],
  [`${kind}, in a header`, jwtAuthAt({ header: { name: "x-token" } }), "", { "x-token": token }],
  [`${kind}, in the query`, jwtAuthAt({ queryParameter: { name: "token" } }), `?token=${token}`, {}],
]);

function encoded(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

function jwtAuthAt(location: object | undefined): object {
  const jwks = keySetOf(createSigningKey("ES256", "one"));
  const settings = { mode: "permissive", issuer: "https://id.example.com", audiences: ["a"], jwks };
  return { jwtAuth: location === undefined ? settings : { ...settings, location } };
}

for (const [name, policies, query, headers] of WRONG)
  test(`a permissive policy forwards no invalid token: ${name}`, async (t) => {
    const backend = await backendFor(t);
    const routes = [{ policies, backends: [{ host: backend.host }] }];
    const gateway = await gatewayFor(t, JSON.stringify({ gateways: { default: { port: 0 } }, routes }));
    assert.equal((await fetch(`${gateway.url()}/${query}`, { headers })).status, 200);
    const [request] = backend.received;
    assert.deepEqual(
      [request?.url, request?.headers.authorization, request?.headers["x-token"]],
      ["/", undefined, undefined],
    );
  });
