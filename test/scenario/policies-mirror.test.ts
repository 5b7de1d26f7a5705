import assert from "node:assert/strict";
import type { RequestListener } from "node:http";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { startBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway } from "../support/gateway.ts";

test("requests are copied with their bodies, the answers are the backend's own, and a dead mirror is not felt", async (t) => {
  const backend = await startBackend();
  const mirror = await startBackend();
  t.after(() => Promise.all([backend.close(), mirror.close()]));
  const gateway = await startGateway(`gateways: { default: { port: 0 } }
routes:
  - matches: [{ path: { pathPrefix: /both } }]
    policies:
      requestMirror: [{ host: "${mirror.host}" }, { host: "127.0.0.1:1" }]
      urlRewrite: { path: { prefix: /new } }
    backends: [{ host: "${backend.host}" }]
  - matches: [{ path: { pathPrefix: /half } }]
    policies: { requestMirror: [{ host: "${mirror.host}", percent: 50 }] }
    backends: [{ host: "${backend.host}" }]
`);
  t.after(() => gateway.close());
  const post = await fetch(`${gateway.url()}/both/x?y=1`, { method: "POST", body: "hello" });
  assert.equal(post.status, 200);
  await eventually("it was copied", () => mirror.received.length >= 1);
  assert.equal(mirror.received[0]?.url, "/new/x?y=1");
  assert.equal(mirror.received[0]?.body, "hello");
  // A server that builds links of them would answer differently without.
  for (const name of ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id"]) {
    assert.ok(backend.received[0]?.headers[name], name);
    assert.equal(mirror.received[0]?.headers[name], backend.received[0]?.headers[name], name);
  }

  const large = await fetch(`${gateway.url()}/both/large`, { method: "POST", body: "x".repeat(300_000) });
  assert.equal(large.status, 200);
  for (let i = 0; i < 4; i++) await (await fetch(`${gateway.url()}/half`)).text();
  await eventually("all were copied", () => mirror.received.length >= 3);
  assert.deepEqual(
    mirror.received.map(({ url }) => url),
    ["/new/x?y=1", "/half", "/half"],
  );
  assert.equal(backend.received.length, 6);
});

for (const scope of ["route", "backend"])
  test(`a request that a rule about its body rejects is not mirrored at the ${scope} [A33]`, async (t) => {
    const backend = await startBackend();
    const mirror = await startBackend();
    t.after(() => Promise.all([backend.close(), mirror.close()]));
    const copies = { requestMirror: [{ host: mirror.host }] };
    const rule = { authorization: { rules: [{ deny: 'llm.requestModel == "secret"' }] } };
    const own = scope === "backend" ? { policies: copies } : {};
    const gateway = await startGateway(
      JSON.stringify({
        gateways: { default: { port: 0 } },
        routes: [
          {
            policies: scope === "route" ? { ...rule, ...copies } : rule,
            backends: [{ host: backend.host, ...own }],
          },
        ],
      }),
    );
    t.after(() => gateway.close());
    const models = ["secret", "open", "secret", "secret", "open", "other", "secret"];
    for (const [i, model] of models.entries()) {
      const body = JSON.stringify({ model, messages: [{ role: "user", content: String(i) }] });
      const headers = { "content-type": "application/json" };
      const answer = await fetch(`${gateway.url()}/v1/chat/completions`, { method: "POST", headers, body });
      await answer.text();
      assert.equal(answer.status, model === "secret" ? 403 : 200);
    }
    await eventually("all that passed were copied", () => mirror.received.length >= 3);
    assert.deepEqual(
      mirror.received.map(({ body }) => JSON.parse(body).model),
      ["open", "open", "other"],
    );
  });

test("with `compare` answers of the mirror are compared by status, shape and type; nothing of it reaches the client", async (t) => {
  const answers =
    (versions: Readonly<Record<string, [status: number, type: string, body: string]>>): RequestListener =>
    (req, res) => {
      const [status, type, body] = versions[req.url ?? ""] ?? [404, "text/plain", "no"];
      res.writeHead(status, { "content-type": type }).end(body);
    };
  const json = "application/json";
  const large = JSON.stringify({ text: "x".repeat(70_000) });
  const backend = await startBackend(
    answers({
      "/same": [200, json, '{"id":1,"name":"a"}'],
      "/status": [200, json, '{"id":1}'],
      "/shape": [200, json, '{"items":[{"id":1}]}'],
      "/type": [200, json, "{}"],
      "/large": [200, json, large],
      "/zipped": [200, json, "{}"],
    }),
  );
  const mirror = await startBackend((req, res) => {
    if (req.url === "/zipped") {
      res.writeHead(200, { "content-type": json, "content-encoding": "gzip" }).end(gzipSync('{"added":1}'));
      return;
    }
    if (req.url === "/broken") {
      req.socket.destroy();
      return;
    }
    answers({
      "/same": [200, json, '{"id":2,"name":"b"}'],
      "/status": [500, json, '{"id":1}'],
      "/shape": [200, json, '{"items":[{"id":"1"}],"next":null}'],
      "/type": [200, "text/html", "<p>"],
      "/large": [200, json, '{"text":1}'],
    })(req, res);
  });
  t.after(() => Promise.all([backend.close(), mirror.close()]));
  const gateway = await startGateway(`gateways: { default: { port: 0 } }
routes:
  - name: api
    policies: { requestMirror: [{ host: "${mirror.host}", compare: true }] }
    backends: [{ host: "${backend.host}" }]
  - name: refused
    matches: [{ path: { pathPrefix: /refused } }]
    policies:
      requestMirror: [{ host: "${mirror.host}", compare: true }]
      directResponse: { status: 200, body: "own" }
`);
  t.after(() => gateway.close());
  for (const path of ["/same", "/same", "/status", "/shape", "/type", "/large", "/zipped", "/broken", "/refused"]) {
    const answer = await fetch(`${gateway.url()}${path}`);
    assert.equal(answer.status, path === "/broken" ? 404 : 200);
    await answer.arrayBuffer();
  }
  interface Report {
    mirrors: ({ differences: { difference: string; requests: number; examples: { request: string }[] }[] } & Record<
      string,
      unknown
    >)[];
  }
  let report: Report = { mirrors: [] };
  await eventually("all copies are compared", async () => {
    report = (await (await fetch(`${gateway.adminUrl}/debug/mirrors`)).json()) as Report;
    return report.mirrors[0]?.compared === 8;
  });
  assert.equal(report.mirrors.length, 1);
  const { differences = [], ...entry } = report.mirrors[0] ?? {};
  const { route, same, status, shape, failed, unread } = entry as Record<string, unknown>;
  assert.deepEqual(
    { route, same, status, shape, failed, unread },
    { route: "api", same: 3, status: 1, shape: 3, failed: 1, unread: 1 },
  );
  const named = differences.map(({ difference, examples }) => `${examples[0]?.request} ${difference}`);
  for (const expected of [
    "GET /status status 200 → 500",
    "GET /shape $.items[].id: number → string",
    "GET /shape $.next: added",
    "GET /type content-type: application/json → text/html",
    "GET /zipped $.added: added",
  ])
    assert.ok(named.includes(expected), `${expected} in ${JSON.stringify(named)}`);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_mirror_compared_total\{route="api",mirror="[^"]+",result="same"\} 3/);
});
