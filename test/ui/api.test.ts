/**
 * What serves the UI, without a browser: headers, a fixed map of files, the playground's way to listeners and nowhere
 * else, and the copy on a gateway that only reads.
 */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { after, before, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { bundledUi } from "./bundle.ts";
import { ask, SECRET, sendTraffic, startDemo } from "./demo-gateway.ts";

let gateway: TestGateway;

before(async () => {
  bundledUi();
  gateway = await startDemo();
  await sendTraffic(gateway);
});
after(() => gateway.close());

const admin = (path: string, init?: RequestInit): Promise<Response> => fetch(gateway.adminUrl + path, init);
const attached = (path: string, init?: RequestInit): Promise<Response> => fetch(gateway.url("default") + path, init);
const post = (body: unknown): RequestInit => ({ method: "POST", body: JSON.stringify(body) });

for (const [place, get] of [
  ["the admin address", admin],
  ["a gateway", attached],
] as const)
  test(`the page on ${place} allows no inline script, no framing and no sniffing [U1]`, async () => {
    const answer = await get("/ui/");
    const policy = answer.headers.get("content-security-policy") ?? "";
    assert.equal(answer.status, 200);
    assert.match(policy, /default-src 'none'/);
    assert.match(policy, /script-src 'self'(?:;|$)/);
    assert.match(policy, /frame-ancestors 'none'/);
    assert.doesNotMatch(policy, /unsafe|\*|https?:/);
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    assert.equal(answer.headers.get("x-frame-options"), "DENY");
    const page = await answer.text();
    assert.doesNotMatch(page, /<script>|<style>|style=|https?:\/\//);
    const script = /src="(\/ui\/app-[^"]+)"/.exec(page)?.[1] ?? "";
    const asset = await get(script);
    assert.equal(asset.status, 200);
    assert.match(asset.headers.get("cache-control") ?? "", /immutable/);
  });

test("every page of the application has the same document [S4.2-15]", async () => {
  const index = await (await admin("/ui/")).text();
  for (const path of ["/ui", "/ui/requests", "/ui/mcp?tool=x", "/ui/callback"])
    assert.equal(await (await admin(path)).text(), index, path);
});

for (const path of [
  "/ui/..%2f..%2fpackage.json",
  "/ui/%2e%2e/package.json",
  "/ui/app.js.map",
  "/ui/index.html.gz",
  "/ui/..%5cpackage.json",
])
  for (const [place, get] of [
    ["admin", admin],
    ["gateway", attached],
  ] as const)
    test(`${path} is no file of the UI (${place}) [U2]`, async () => {
      const answer = await get(path);
      const body = await answer.text();
      assert.ok(answer.status >= 400, String(answer.status));
      assert.ok(!body.includes("mcp-llm-gateway"));
    });

test("the API offers reads of the admin interface, but neither its shutdown nor an upgrade", async () => {
  assert.equal((await admin("/ui/api/config_dump")).status, 200);
  assert.equal((await admin("/ui/api/quitquitquit", { method: "POST" })).status, 404);
  assert.equal((await admin("/ui/api/upgrade", { method: "POST" })).status, 404);
  assert.equal((await admin("/ui/api/nothing")).status, 404);
  assert.equal((await admin("/ui/api/logging", { method: "POST" })).status, 200);
  assert.equal((await admin("/ui/api/config_dump", { method: "POST" })).status, 405);
});

test("a request from another origin is refused", async () => {
  const answer = await admin("/ui/api/call", { ...post({}), headers: { origin: "http://evil.example" } });
  assert.equal(answer.status, 403);
});

test("a call goes to a listener of this process and comes back line by line", async () => {
  const answer = await admin("/ui/api/call", post({ listener: "default", method: "GET", path: "/hello", headers: {} }));
  const lines = (await answer.text())
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.equal(lines[0]?.status, 200);
  assert.equal(lines[1]?.text, "hello");
  assert.deepEqual(lines.at(-1), { end: true });
});

for (const [name, body, status] of [
  ["an unknown listener", { listener: "other", method: "GET", path: "/" }, 404],
  ["an address as the listener", { listener: "127.0.0.1:22", method: "GET", path: "/" }, 404],
  ["a path that is an address", { listener: "default", method: "GET", path: "http://evil.example/" }, 400],
  ["a method beyond the three", { listener: "default", method: "CONNECT", path: "/" }, 400],
  ["a header with a line break", { listener: "default", method: "GET", path: "/", headers: { a: "b\r\nc: d" } }, 400],
  ["no JSON", undefined, 400],
] as const)
  test(`a call with ${name} is refused with ${status}`, async () => {
    const answer = await admin("/ui/api/call", post(body));
    assert.equal(answer.status, status);
    await answer.text();
  });

test("a token is asked for only where the listener's own metadata says", async () => {
  const answer = await admin("/ui/api/token", post({ listener: "default", resourcePath: "/mcp", form: { code: "x" } }));
  assert.equal(answer.status, 502);
  assert.match(await answer.text(), /has no token endpoint/);
});

test("the configuration text has marks where secrets stand, and a stale edit is refused", async () => {
  const { files } = (await (await admin("/ui/api/config-text")).json()) as {
    files: { file: string; base: string; text: string }[];
  };
  const [file] = files;
  assert.ok(file?.text.includes("<redacted:0>") && !file.text.includes(SECRET));
  const edit = { file: file?.file, base: "stale", text: "" };
  assert.equal((await admin("/ui/api/validate", post(edit))).status, 409);
  assert.equal((await admin("/ui/api/validate", post({ ...edit, file: "/etc/passwd" }))).status, 404);
  const save = await admin("/ui/api/save", post({ ...edit, base: file?.base }));
  assert.equal(save.status, 403);
  assert.match(await save.text(), /config\.allowConfigEdit/);
});

test("an expression filters many requests at once", async () => {
  const { requests } = (await (await admin("/debug/requests")).json()) as { requests: { id: string; path: string }[] };
  const ids = requests.map(({ id }) => id);
  const found = (await (
    await admin("/ui/api/matching", post({ expression: 'request.path == "/closed"', ids }))
  ).json()) as { matching: string[] };
  assert.deepEqual(
    found.matching,
    requests.filter(({ path }) => path === "/closed").map(({ id }) => id),
  );
  const wrong = (await (await admin("/ui/api/matching", post({ expression: "request.", ids }))).json()) as {
    error?: string;
  };
  assert.ok(wrong.error);
});

test("a filter reports each request that it cannot evaluate, with the reason", async () => {
  const { requests } = (await (await admin("/debug/requests")).json()) as { requests: { id: string; path: string }[] };
  const ids = [...requests.map(({ id }) => id), "unknown"];
  const filter = async (expression: string): Promise<{ matching: string[]; errors: [string, string][] }> =>
    (await (await admin("/ui/api/matching", post({ expression, ids }))).json()) as never;
  const models = await filter('llm.requestModel == "demo"');
  assert.deepEqual(
    models.matching,
    requests.filter(({ path }) => path === "/v1/chat/completions").map(({ id }) => id),
  );
  assert.equal(models.errors.length, ids.length - models.matching.length);
  assert.match(models.errors[0]?.[1] ?? "", /requestModel/);
  assert.deepEqual(models.errors.at(-1), ["unknown", "the request is no longer in memory"]);
  const codes = await filter("response.code");
  assert.deepEqual(codes.errors[0], [ids[0], "the result is not a bool"]);
});

test("the copy on a gateway reads, and does nothing else", async () => {
  for (const name of [
    "about",
    "config_dump",
    "metrics",
    "debug/requests",
    "debug/limits",
    "healthz/ready",
    "memory",
    "debug/tasks",
  ])
    assert.equal((await attached(`/ui/api/${name}`)).status, 200, name);
  for (const name of [
    "debug/trace",
    "debug/pprof/profile",
    "debug/cel",
    "logging",
    "quitquitquit",
    "call",
    "config-text",
    "debug/requests?follow=true",
  ])
    assert.equal((await attached(`/ui/api/${name}`)).status, 404, name);
  for (const name of ["logging?level=debug", "quitquitquit", "call", "save"])
    assert.equal((await attached(`/ui/api/${name}`, { method: "POST" })).status, 405, name);
  assert.equal(((await (await attached("/ui/api/about")).json()) as { readOnly: boolean }).readOnly, true);
  assert.ok(!(await (await attached("/ui/api/config_dump")).text()).includes(SECRET));
  await ask(gateway, "still up");
});

test("other sites may link to the copy on a gateway but not read it", async () => {
  const status = (path: string, mode: string): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const headers = { "sec-fetch-site": "cross-site", "sec-fetch-mode": mode };
      const sent = httpRequest(gateway.url("default") + path, { headers }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      });
      sent.on("error", reject);
      sent.end();
    });
  assert.equal(await status("/ui/", "navigate"), 200);
  assert.equal(await status("/ui/", "no-cors"), 403);
  assert.equal(await status("/ui/api/config_dump", "cors"), 403);
});
