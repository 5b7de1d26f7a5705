/**
 * One path for every decision: routes, rules, limits, canaries, rewrites and the backend see the same spelling, and
 * the spelling of the client stays readable under its own name.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { respelled } from "../support/path-spellings.ts";
import { Random } from "../support/random.ts";
import { rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, behindGateway, gatewayFor } from "../support/scenario.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

const SPELLINGS = 40;

function spellingsOf(path: string): string[] {
  const random = new Random(1);
  return [path, ...Array.from({ length: SPELLINGS }, () => respelled(path, random))];
}

async function statusOf(port: number, target: string): Promise<number> {
  return (await rawRequest(port, requestText(`GET ${target} HTTP/1.1`))).status;
}

test("a deny rule on request.path holds for every spelling of the path [L16]", async (t) => {
  const { gateway, backend } = await behindGateway(
    t,
    undefined,
    `policies: { authorization: { rules: [{ deny: 'request.path.startsWith("/pr/secret")' }] } }`,
  );
  const known = ["//pr/secret", "/pr//secret", "/pr/%73ecret", "/%70r/secret", "/pr/s%65cret/x"];
  for (const target of [...known, ...spellingsOf("/pr/secret/~x_1.txt")])
    assert.equal(await statusOf(gateway.port(), target), 403, target);
  assert.equal(backend.received.length, 0);
  assert.equal(await statusOf(gateway.port(), "/pr/%70ublic"), 200);
});

test("the backend receives the canonical path, and the query unchanged [L16]", async (t) => {
  const { gateway, backend } = await behindGateway(t);
  for (const target of spellingsOf("/a-b/c.d/~e%C3%A9%2F1")) await statusOf(gateway.port(), `${target}?q=%7e//%2f`);
  assert.deepEqual([...new Set(backend.received.map(({ url }) => url))], ["/a-b/c.d/~e%C3%A9%2F1?q=%7e//%2f"]);
});

test("limit keys, canary conditions and transformations read the canonical path; rawPath is as received [L16]", async (t) => {
  const [old, fresh] = [await backendFor(t), await backendFor(t)];
  const gateway = await gatewayFor(
    t,
    `
gateways: { default: { port: 0 } }
routes:
  - policies:
      rateLimit: { local: [{ requests: 50, unit: Hours, key: request.path }] }
      transformations: { request: { set: { x-path: request.path, x-raw: request.rawPath } } }
    backends:
      - { host: "${old.host}" }
      - { host: "${fresh.host}", canary: { when: 'request.path == "/new/x"' } }
`,
  );
  const spellings = spellingsOf("/new/x");
  for (const target of spellings) assert.equal(await statusOf(gateway.port(), target), 200, target);
  assert.equal(old.received.length, 0);
  assert.deepEqual(
    fresh.received.map(({ headers }) => [headers["x-path"], headers["x-raw"]]),
    spellings.map((target) => ["/new/x", target]),
  );
  const statuses = await Promise.all(spellings.slice(0, 20).map((target) => statusOf(gateway.port(), target)));
  assert.equal(statuses.filter((status) => status === 200).length, 50 - spellings.length);
});

test("the trace shows the first request as received and the last one as sent; the log names both paths", async (t) => {
  const { gateway } = await behindGateway(t);
  const events = await traceOf(gateway, () => statusOf(gateway.port(), "//a/%62?q=1"));
  const paths = messagesOf(events, "requestSnapshot").map(({ stage, requestState }) => {
    const { path, uri } = requestState.request as { path: string; uri: string };
    return [stage, path, uri.replace(/^http:\/\/[^/]+|\?.*$/g, "")];
  });
  assert.deepEqual(paths[0], ["initial request", "//a/%62", "//a/%62"]);
  assert.deepEqual(paths.at(-1), ["final request", "/a/b", "/a/b"]);
  await gateway.logged("rawPath=//a/%62");
});

const REWRITES: [name: string, policy: string, target: string, sent: string][] = [
  ["a prefix /", "urlRewrite: { path: { prefix: / } }", "/root//evil.example/x", "/evil.example/x"],
  ["a prefix", "urlRewrite: { path: { prefix: /v1/ } }", "//r%6fot///x", "/v1/x"],
  ["a prefix with needless escapes", "urlRewrite: { path: { prefix: /%76%31 } }", "/root/x", "/v1/x"],
  ["a whole path", "urlRewrite: { path: { full: //a//b } }", "/root/x", "/a/b"],
];
for (const [name, policy, target, sent] of REWRITES)
  test(`a rewrite with ${name} sends ${target} as ${sent} [L17]`, async (t) => {
    const { gateway, backend } = await behindGateway(
      t,
      undefined,
      `matches: [{ path: { pathPrefix: /root } }], policies: { ${policy} }`,
    );
    assert.equal(await statusOf(gateway.port(), target), 200);
    assert.equal(backend.received[0]?.url, sent);
  });

test("a rewrite that would begin with an encoded slash is refused [L17]", async (t) => {
  const { gateway, backend } = await behindGateway(
    t,
    undefined,
    "matches: [{ path: { pathPrefix: /root } }], policies: { urlRewrite: { path: { prefix: / } } }",
  );
  for (const target of ["/root/%2fevil.example", "/root/%5cevil.example", "/root/%252fevil.example"])
    assert.equal(await statusOf(gateway.port(), target), 400, target);
  assert.equal(backend.received.length, 0);
});

test("a redirect names the canonical path and never another host [L17]", async (t) => {
  const { gateway } = await behindGateway(
    t,
    undefined,
    "matches: [{ path: { pathPrefix: /root } }], policies: { requestRedirect: { path: { prefix: / } } }",
  );
  const { text } = await rawRequest(gateway.port(), requestText("GET /root//evil.example/%7ex HTTP/1.1"));
  assert.match(text, /^location: http:\/\/[^/]+\/evil\.example\/~x\r$/m);
});

// Path parameters and other spellings that some servers read as a different path.

const AROUND = [
  "/admin;x", "/admin;x/users", "/;/admin", "/;a=b/admin", "/admin;/users", "/admin%3Bx", "/%2561dmin", "/%252561dmin", "/admin%2520",
  "/admin%20", "/admin%09", "/admin%0a", "/admin%0d", "/admin.", "/admin./users", "/admin%2e", "/admin%3F", "/admin%23x", "/x%2f..%2fadmin",
  "/%252e%252e/admin", "/x/%252e%252e%252fadmin", "/x/..%20/admin", "/x/..%3b/admin", "/admin%252fusers", "/admin%255cusers", "/admin%c0%af",
  "/%c0%ae%c0%ae/admin", "/admin%00", "/admin%2500", "/admin%7f", "/%2f%2fadmin", "/.;/admin", "/%3b/admin",
]; // biome-ignore format: a table

async function guarded(t: TestContext) {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `
gateways: { default: { port: 0 } }
routes:
  - name: guarded
    matches: [{ path: { pathPrefix: /admin } }]
    policies: { apiKey: { keys: [{ key: open-sesame, metadata: { user_id: alice } }] } }
    backends: [{ host: "${backend.host}" }]
  - name: open
    backends: [{ host: "${backend.host}" }]
`,
  );
  return { backend, gateway };
}

test("no spelling that a server could read as a protected path reaches it through an open route [L5]", async (t) => {
  const { backend, gateway } = await guarded(t);
  for (const target of AROUND) {
    const status = await statusOf(gateway.port(), target);
    assert.ok(status === 400 || status === 401, `${target}: ${status}`);
  }
  assert.equal(backend.received.length, 0);
});

const LEGITIMATE = [
  "/files/a%2Fb", "/files/a;v=1", "/files/a%20b", "/files/a%20", "/files/100%25.txt", "/files/50%2520off", "/files/v1...v2", "/files/.well-known/x",
  "/zones/example.com.", "/m/x:generateContent", "/m/x%3AgenerateContent", "/files/caf%C3%A9", "/files/caf%E9", "/@scope%2Fname", "/administrator;x",
]; // biome-ignore format: a table

test("an open route forwards path parameters and escapes that hide nothing", async (t) => {
  const { backend, gateway } = await guarded(t);
  for (const target of LEGITIMATE) {
    assert.equal(await statusOf(gateway.port(), target), 200, target);
    assert.equal(backend.received.at(-1)?.url, target);
  }
});

test("a protected route refuses spellings that its rules and its backend could read differently [L17]", async (t) => {
  const { gateway, backend } = await behindGateway(
    t,
    undefined,
    `policies: { authorization: { rules: [{ deny: 'request.path == "/pr/secret"' }] } }`,
  );
  for (const target of [
    "/pr/secret;x",
    "/pr;x/secret",
    "/;/pr/secret",
    "/pr/%2573ecret",
    "/pr%2fsecret",
    "/pr/secret%20",
  ])
    assert.equal(await statusOf(gateway.port(), target), 400, target);
  assert.equal(backend.received.length, 0);
  for (const target of ["/pr/x:generateContent", "/pr/a%20b", "/zones/example.com.", "/pr/100%25"])
    assert.equal(await statusOf(gateway.port(), target), 200, target);
});

test("a cached answer is found under every spelling of the path [L16]", async (t) => {
  let calls = 0;
  const provider = await backendFor(t, (req, res) => {
    calls += 1;
    req.resume().on("end", () => {
      const message = { role: "assistant", content: "hi" };
      const choices = [{ index: 0, message, finish_reason: "stop" }];
      res.writeHead(200, { "content-type": "application/json" });
      res.end(JSON.stringify({ id: "1", object: "chat.completion", model: "m", choices }));
    });
  });
  const gateway = await gatewayFor(
    t,
    `
gateways: { default: { port: 0 } }
routes:
  - backends:
      - ai:
          auth: { key: k }
          cache: { ttl: 1h, scope: shared }
          provider: { openAICompatible: { baseUrl: "http://${provider.host}/v1" } }
`,
  );
  const body = '{"model":"m","messages":[{"role":"user","content":"hi"}]}';
  for (const target of spellingsOf("/v1/chat/completions").slice(0, 10)) {
    const lines = ["Content-Type: application/json", `Content-Length: ${body.length}`];
    const answer = await rawRequest(gateway.port(), requestText(`POST ${target} HTTP/1.1`, lines, body));
    assert.equal(answer.status, 200, answer.text);
  }
  assert.equal(calls, 1);
});
