import assert from "node:assert/strict";
import { test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { armTrace } from "../support/trace.ts";

/** Long enough that no other text contains them by chance. */
const SECRETS = {
  authorization: "planted-authorization-value",
  proxyAuthorization: "planted-proxy-authorization",
  cookie: "planted-cookie-value",
  setCookie: "planted-set-cookie-value",
  configured: "planted-configured-header",
  added: "planted-key-that-the-gateway-adds",
  computed: "planted-key-from-an-expression",
  query: "planted-query-credential",
  clientSecret: "planted-client-secret",
  code: "planted-authorization-code",
  accessToken: "planted-access-token",
  refreshToken: "planted-refresh-token",
};

/** Also as base64 at each of the three alignments, and percent-encoded. */
function* forms(secret: string): Generator<string> {
  yield secret;
  for (let shift = 0; shift < 3; shift++) {
    const encoded = Buffer.from(" ".repeat(shift) + secret).toString("base64");
    yield encoded.slice(shift === 0 ? 0 : 4, -4);
  }
}

function assertClean(where: string, text: string): void {
  // Bodies in a trace are base64 of their own: look inside as well.
  const bodies = [...text.matchAll(/"body":"([A-Za-z0-9+/=]+)"/g)].map(([, body]) =>
    Buffer.from(body ?? "", "base64").toString(),
  );
  for (const [name, secret] of Object.entries(SECRETS))
    for (const form of forms(secret))
      for (const part of [text, ...bodies]) assert.ok(!part.includes(form), `${name} appears in ${where}`);
}

test("a planted secret appears in no trace, dump, recent request, log or gwctl output, and reaches the backend [N7] [D14] [S2.1-13] [S5-5] [S5-6] [S5-15]", async () => {
  const backend = await startBackend((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      backend.received.push({
        method: req.method ?? "",
        url: req.url ?? "",
        headers: req.headers,
        rawHeaders: req.rawHeaders,
        body: Buffer.concat(chunks).toString(),
      });
      res.writeHead(200, { "content-type": "application/json", "set-cookie": `sid=${SECRETS.setCookie}` });
      res.end(
        JSON.stringify({ access_token: SECRETS.accessToken, refresh_token: SECRETS.refreshToken, expires_in: 60 }),
      );
    });
  });
  const gateway = await startGateway(`
config:
  sensitiveHeaders: [X-Tenant-Token]
  logging: { level: trace }
  tracing: { keepFailed: {} }
gateways: { default: { port: 0 } }
routes:
  - name: token
    matches: [{ path: { pathPrefix: /token } }]
    backends: [{ host: "${backend.host}", policies: { requestHeaderModifier: { set: { x-api-key: "${SECRETS.added}" } } } }]
    policies:
      transformations:
        request:
          set:
            x-goog-api-key: "'${SECRETS.computed}'"
            x-copy: 'request.headers["x-tenant-token"].size() > 3 ? "long" : "short"'
  - name: refused
    matches: [{ path: { pathPrefix: /refused } }]
    backends: [{ host: "${backend.host}" }]
    policies:
      authorization: { rules: ['request.headers["Authorization"] == "never"'] }
`);
  const headers = {
    authorization: `Bearer ${SECRETS.authorization}`,
    "proxy-authorization": `Basic ${SECRETS.proxyAuthorization}`,
    cookie: `sid=${SECRETS.cookie}`,
    "x-tenant-token": SECRETS.configured,
    "content-type": "application/x-www-form-urlencoded",
  };
  const body = `grant_type=authorization_code&code=${SECRETS.code}&client_secret=${SECRETS.clientSecret}`;
  for (const path of ["/token", "/refused"]) {
    const trace = await armTrace(gateway);
    const response = await fetch(`${gateway.url()}${path}?access_token=${SECRETS.query}`, {
      method: "POST",
      body,
      headers: { ...headers, "x-request-id": `secret${path.replace("/", "-")}` },
    });
    await response.text();
    const text = await trace.text;
    assert.match(text, /<redacted>/);
    assertClean(`the trace of ${path}`, text);
  }

  const port = new URL(gateway.adminUrl).port;
  for (const path of [
    "/config_dump",
    "/debug/requests",
    "/debug/requests?id=secret-token",
    "/debug/requests?id=secret-refused",
    "/memory",
    "/debug/tasks",
  ])
    assertClean(path, await (await fetch(`${gateway.adminUrl}${path}`)).text());
  for (const args of [
    ["explain", "secret-refused"],
    ["explain", "secret-token", "-o", "json"],
    ["policies"],
    ["proxy", "config", "all"],
    ["requests"],
  ]) {
    const { stdout, stderr } = await gwctl([...args, "-p", port]);
    assertClean(`gwctl ${args.join(" ")}`, stdout + stderr);
  }
  assertClean("the log", gateway.log().join("\n"));

  const [received] = backend.received;
  assert.equal(received?.headers["x-api-key"], SECRETS.added);
  assert.equal(received?.headers["x-goog-api-key"], SECRETS.computed);
  assert.equal(received?.headers.authorization, headers.authorization);
  assert.equal(received?.headers["x-copy"], "long");
  assert.equal(received?.body, body);
  await gateway.close();
  await backend.close();
});

test("copies of a credential are hidden under every name, also when a policy has taken the original out [N7]", async () => {
  const token = "planted-token-to-copy";
  const backend = await startBackend();
  const gateway = await startGateway(`
config: { logging: { level: trace } }
gateways:
  default:
    port: 0
    policies:
      transformations:
        request:
          set:
            x-copy: 'request.headers["authorization"]'
            x-token: 'request.headers["authorization"].substring(7)'
            x-within: '"token=" + request.headers["authorization"].substring(7) + ";"'
routes:
  - name: removed
    matches: [{ path: { pathPrefix: /removed } }]
    backends: [{ host: "${backend.host}" }]
    policies:
      transformations: { request: { remove: [authorization], set: { x-again: 'request.headers["x-token"]' } } }
  - name: replaced
    matches: [{ path: { pathPrefix: /replaced } }]
    backends: [{ host: "${backend.host}" }]
    policies: { requestHeaderModifier: { set: { authorization: "Bearer other" } } }
  - name: kept
    backends: [{ host: "${backend.host}" }]
    policies:
      transformations: { response: { set: { x-back: 'request.headers["x-token"]' } } }
`);
  try {
    for (const path of ["/removed", "/replaced", "/kept"]) {
      const send = (id: string): Promise<Response> =>
        fetch(`${gateway.url()}${path}`, { headers: { authorization: `Bearer ${token}`, "x-request-id": id } });
      await (await send(`untraced${path.slice(1)}`)).arrayBuffer();
      assert.equal(backend.received.at(-1)?.headers["x-token"], token, "the backend gets the real value");
      const trace = await armTrace(gateway);
      await (await send(`traced${path.slice(1)}`)).arrayBuffer();
      const shown = { trace: await trace.text, recent: "", log: gateway.log().join("\n") };
      for (const id of [`untraced${path.slice(1)}`, `traced${path.slice(1)}`])
        shown.recent += await (await fetch(`${gateway.adminUrl}/debug/requests?id=${id}`)).text();
      assert.match(shown.recent, /"x-token":\s*"<redacted>"/);
      assert.match(shown.recent, /"x-within":\s*"token=<redacted>;"/);
      for (const [where, text] of Object.entries(shown)) {
        const bodyless = text.replace(/"type":"bodySnapshot".*/g, "");
        assert.ok(!bodyless.includes(token), `${path}: a copy appears in the ${where}`);
      }
    }
  } finally {
    await gateway.close();
    await backend.close();
  }
});
