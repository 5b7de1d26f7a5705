/**
 * Spec 5: the documents of protected routes: several on one listener, whatever their order, and paths, hosts and headers
 * that must not change what is answered or where clients are sent.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ISSUER, KEYS_FILE, kept, token } from "../support/identity/known-issuer.ts";
import { DEMO_TARGET, initialize, startProtectedGateway } from "../support/identity/protected-gateway.ts";
import { rawRequest } from "../support/raw-client.ts";

test("several protected routes of a listener have their own documents; the bare ones belong to the route at /mcp", async (context) => {
  const route = (origin: string, path: string): string => `
  - name: route-${path.slice(1)}
    matches: [{ path: { exact: ${path} } }]
    backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
    policies:
      mcpAuthentication:
        issuer: ${ISSUER}${path}
        audiences: [gateway]
        jwks: ./jwks.json
        resourceMetadata: { resource: ${origin}${path}, scopesSupported: [scope-of-${path.slice(1)}] }`;
  const { base, request } = kept(
    context,
    await startProtectedGateway(
      (origin) => `
gateways: { default: { port: 0, protocol: HTTP } }
routes:${route(origin, "/first")}${route(origin, "/mcp")}${route(origin, "/other")}
`,
      { files: KEYS_FILE },
    ),
  );
  const resourceAt = async (path: string): Promise<string> =>
    ((await (await request(path)).json()) as { resource: string }).resource;
  for (const path of ["/first", "/mcp", "/other"]) {
    assert.equal(await resourceAt(`/.well-known/oauth-protected-resource${path}`), `${base}${path}`);
    const refused = await request(path, { method: "POST" });
    assert.equal(
      refused.headers.get("www-authenticate"),
      `Bearer resource_metadata="${base}/.well-known/oauth-protected-resource${path}"`,
    );
    const own = token({ iss: `${ISSUER}${path}` });
    assert.equal((await request(path, initialize(own))).status, 200);
  }
  assert.equal(await resourceAt("/.well-known/oauth-protected-resource"), `${base}/mcp`);
  assert.equal(await resourceAt("/.well-known/oauth-protected-resource/mcp"), `${base}/mcp`);
  assert.equal(
    (await request("/mcp", initialize(token({ iss: `${ISSUER}/other` })))).status,
    401,
    "another route's token",
  );
});

const RESOURCES = ["/first", "/mcp", "/"];
for (const order of RESOURCES.flatMap((a) => RESOURCES.map((b) => [a, b])).filter(([a, b]) => a !== b)) {
  const paths = [...order, RESOURCES.find((path) => !order.includes(path)) ?? ""];
  test(`each resource has its own documents, whatever the order of the routes: ${paths.join(" ")}`, async (context) => {
    const routes = (origin: string): string =>
      paths
        .map(
          (path, i) => `
  - name: route-${i}
    matches: [{ path: { pathPrefix: ${path} } }]
    backends: [{ host: "127.0.0.1:1" }]
    policies: { mcpAuthentication: { issuer: "${ISSUER}", audiences: [gateway], jwks: ./jwks.json, resourceMetadata: { resource: "${origin}${path}" } } }`,
        )
        .join("");
    const { base, request } = kept(
      context,
      await startProtectedGateway(
        (origin) => `gateways: { default: { port: 0, protocol: HTTP } }\nroutes:${routes(origin)}\n`,
        { files: KEYS_FILE },
      ),
    );
    for (const path of paths) {
      const refused = await request(path, { method: "POST" });
      const [, address = ""] = /resource_metadata="([^"]+)"/.exec(refused.headers.get("www-authenticate") ?? "") ?? [];
      const { resource } = (await (await request(new URL(address).pathname)).json()) as { resource: string };
      assert.equal(resource, `${base}${path}`);
    }
  });
}

const GUARDED: [name: string, policy: (origin: string) => string, host: string, status: number][] = [
  ["a route that requires a token", (origin) => tokenPolicy(origin), "gw.example.com", 200],
  [
    "a route that takes tokens but requires none",
    (origin) => tokenPolicy(origin, "mode: optional, "),
    "gw.example.com",
    403,
  ],
  [
    "the host of its own resource",
    () => tokenPolicy("https://mcp.example.test", "mode: optional, "),
    "mcp.example.test",
    200,
  ],
  ["a route with no authentication", () => "cors: { allowOrigins: ['*'] }", "gw.example.com", 403],
];

function tokenPolicy(origin: string, more = ""): string {
  return `mcpAuthentication: { ${more}issuer: "${ISSUER}", audiences: [gateway], jwks: ./jwks.json, resourceMetadata: { resource: "${origin}/mcp" } }`;
}

for (const [name, policy, host, status] of GUARDED) {
  test(`over loopback with a Host of another machine: ${name} → ${status}`, async (context) => {
    const { base } = kept(
      context,
      await startProtectedGateway(
        (origin) => `mcp: { port: 0, targets: [${DEMO_TARGET}], policies: { ${policy(origin)} } }`,
        { files: KEYS_FILE },
      ),
    );
    const { body, headers } = initialize(token()) as { body: string; headers: Record<string, string> };
    const lines = Object.entries({ ...headers, "content-length": String(body.length) }).map(
      ([header, value]) => `${header}: ${value}\r\n`,
    );
    const answer = await rawRequest(
      Number(new URL(base).port),
      `POST /mcp HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${lines.join("")}\r\n${body}`,
    );
    assert.equal(answer.status, status, answer.text);
  });
}

test("paths that look like documents or the endpoint get nothing without a token [L5] [V14]", async (context) => {
  const { request } = kept(
    context,
    await startProtectedGateway(
      (origin) => `
gateways: { default: { port: 0 } }
routes:
  - backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
    matches: [{ path: { pathPrefix: / } }]
    policies:
      mcpAuthentication:
        issuer: ${ISSUER}
        audiences: [gateway]
        jwks: ./jwks.json
        resourceMetadata: { resource: ${origin}/mcp }
`,
      { files: KEYS_FILE },
    ),
  );
  const paths = [
    "//mcp",
    "/mcp/",
    "/mcp/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server/mcp/",
    "/.well-known/oauth-authorization-server/authorize",
    "/anything",
  ];
  for (const path of paths) {
    const { status } = await request(path);
    assert.ok(status === 401 || status === 400, `${path} → ${status}`);
  }
});

test("no header stands in for a token, and none changes where clients are sent [L14] [V12] [V13] [V14]", async (context) => {
  const { base, gateway } = kept(
    context,
    await startProtectedGateway(
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
      { files: KEYS_FILE },
    ),
  );
  const forged = [
    "X-Forwarded-Uri: /.well-known/oauth-protected-resource",
    "X-Original-Url: /.well-known/oauth-protected-resource",
    "X-Rewrite-Url: /.well-known/oauth-protected-resource",
    "X-Http-Method-Override: OPTIONS",
    "X-Forwarded-Host: evil.test",
    "X-Forwarded-Proto: https",
    "Forwarded: host=evil.test;proto=https",
    "X-Auth-Request-User: admin",
    "X-Authenticated-User: admin",
    "X-Jwt-Payload: eyJzdWIiOiJyb290In0",
    "X-Gateway-Error: none",
    "X-Mcp-Router: key",
    "Mcp-Internal: true",
    "Mcp-Session-Id: 00000000000000000000000000000000",
    "Mcp-Protocol-Version: 2025-06-18",
    `Proxy-Authorization: Bearer ${token()}`,
    `X-Access-Token: ${token()}`,
    `Cookie: token=${token()}; authorization=Bearer ${token()}`,
    "Authorization: Bearer x",
  ];
  for (const header of [...forged, forged.slice(0, -1).join("\r\n")]) {
    const answer = await rawRequest(
      gateway.port(),
      `POST /mcp HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\nContent-Length: 0\r\n${header}\r\n\r\n`,
    );
    assert.equal(answer.status, 401, header);
    assert.ok(answer.text.includes(`resource_metadata="${base}/.well-known/oauth-protected-resource/mcp"`), header);
  }
  const document = await rawRequest(
    gateway.port(),
    "GET /.well-known/oauth-protected-resource/mcp HTTP/1.1\r\nHost: evil.test\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n",
  );
  assert.ok(document.text.includes(`"authorization_servers":["${base}/mcp"]`) && !document.text.includes("evil.test"));
});
