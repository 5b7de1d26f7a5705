import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";
import { DEMO_TARGET } from "../support/identity/protected-gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { modernPost } from "../support/mcp/modern-client.ts";

async function setUp(t: TestContext, access: object | undefined) {
  const backend = await startBackend((req, res) => {
    res.writeHead(req.url?.startsWith("/missing") ? 404 : 200);
    res.end("ok");
  });
  t.after(() => backend.close());
  const gateway = await startGateway(`
config: { logging: { format: json${access ? `, access: ${JSON.stringify(access)}` : ""} } }
gateways: { default: { port: 0 } }
routes:
  - name: tools
    backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
  - name: models
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
    policies: { apiKey: { mode: strict, keys: [{ key: sk-very-secret-1, metadata: { user_id: ada } }] } }
  - name: limited
    matches: [{ path: { pathPrefix: /limited } }]
    backends: [{ host: "${backend.host}" }]
    policies: { rateLimit: { local: [{ requests: 1, unit: Hours }] } }
  - name: plain
    matches: [{ path: { pathPrefix: / } }]
    backends: [{ host: "${backend.host}" }]
`);
  t.after(() => gateway.close());
  const get = (path: string, headers: Record<string, string> = {}) =>
    fetch(`${gateway.url()}${path}`, { headers }).then((response) => response.text());
  const lines = () =>
    gateway
      .log()
      .filter((line) => line.includes('"request"'))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { gateway, get, lines };
}

test("fields and filter of the access log are expressions, and credentials stay out of it", async (t) => {
  const { get, lines } = await setUp(t, {
    filter: "response.code >= 400 || request.path.startsWith('/kept')",
    fields: {
      tenant: 'request.headers["x-tenant"]',
      code: "response.code",
      who: 'request.headers["authorization"]',
      uri: "request.uri",
      all: "request.headers",
      broken: "jwt.sub",
    },
  });
  await get("/dropped");
  await get("/missing");
  await get("/kept?api_key=sk-in-the-query&a=1", {
    "x-tenant": "acme",
    authorization: "Bearer very-secret-token",
    "x-copy": "very-secret-token",
  });
  const [missing, kept, ...more] = lines();
  assert.deepEqual(more, []);
  assert.deepEqual([missing?.path, missing?.code, missing?.tenant], ["/missing", 404, undefined]);
  assert.deepEqual([kept?.path, kept?.tenant, kept && "broken" in kept], ["/kept", "acme", false]);
  assert.match(String(kept?.uri), /api_key=<redacted>&a=1$/);
  assert.equal(kept?.who, "<redacted>");
  assert.ok(!JSON.stringify(kept).includes("very-secret"), JSON.stringify(kept));
  assert.ok(!JSON.stringify(kept).includes("sk-in-the-query"));
});

test("a filter that cannot be evaluated keeps the line", async (t) => {
  const { get, lines } = await setUp(t, { filter: "jwt.sub == 'ada'" });
  await get("/plain");
  assert.equal(lines().length, 1);
});

test("every metric that the gateway shows is in the reference, with its labels", async (t) => {
  const { gateway, get } = await setUp(t, undefined);
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  await client.request("tools/list");
  await get("/limited");
  await get("/limited");
  await fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer sk-very-secret-1" },
    body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hello" }] }),
  }).then((response) => response.text());
  const text = await fetch(`${gateway.adminUrl}/metrics`).then((response) => response.text());
  const page = readFileSync("docs/reference/metrics.md", "utf8");
  const rows = new Map(
    [...page.matchAll(/^\| `([a-z0-9_]+)` \| (\w+) \| (.*?) \| /gm)].map(([, name, type, labels]) => [
      name as string,
      { type, labels: [...(labels as string).matchAll(/`(\w+)`/g)].map(([, label]) => label) },
    ]),
  );
  const types = new Map([...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name, type]) => [name as string, type]));
  assert.ok(types.size > 15);
  for (const [name, type] of types) assert.equal(rows.get(name)?.type, type, name);
  for (const [, series = "", labels = ""] of text.matchAll(/^(\w+)\{(.*)\} /gm)) {
    const name = types.has(series) ? series : series.replace(/_(?:bucket|sum|count)$/, "");
    const found = [...labels.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g)].map(([, label]) => label).filter((l) => l !== "le");
    assert.deepEqual(found, rows.get(name)?.labels, name);
  }
  assert.match(text, /^gateway_key_requests_total\{key="ada",status_class="2xx"\} 1$/m);
  assert.match(text, /^gateway_key_tokens_total\{key="ada",type="output"\} [1-9]/m);
  assert.match(text, /^gateway_build_info\{version="0.0.0-test",node="v[\d.]+"\} 1$/m);
  assert.match(text, /^process_cpu_seconds_total 0?\d*\.\d+/m);
  assert.ok(!text.includes("sk-very-secret"));
});

/** A scrape after requests to every kind of backend, including failures, streams, and names with quotes. */
async function scrape(t: TestContext): Promise<string> {
  const backend = await startBackend((_req, res) => void res.end("ok"));
  t.after(() => backend.close());
  const gateway = await startGateway(`
config: { audit: { file: { path: audit.log } } }
gateways: { default: { port: 0 } }
routes:
  - name: tools
    backends: [{ mcp: { targets: [${DEMO_TARGET}, { name: missing, stdio: { cmd: /missing/server } }] } }]
  - name: models
    matches: [{ path: { pathPrefix: /v1 } }]
    policies:
      apiKey: { mode: strict, keys: [{ key: sk-very-secret-1, metadata: { user_id: 'a"d\\a' } }] }
      rateLimit: { local: [{ tokens: 100000, unit: Hours }] }
      budgets: { limits: [{ name: team, tokens: 100000, per: day, alertAt: [1] }] }
    backends:
      - ai:
          cache: { ttl: 60s }
          models:
            - { name: 'de"m\\o', provider: demo }
            - { name: down, provider: openAI, params: { hostOverride: "127.0.0.1:1", apiKey: k } }
          virtualModels:
            - name: reliable
              routing: { failover: { targets: [{ model: down, priority: 0 }, { model: 'de"m\\o', priority: 1 }] } }
  - name: limited
    matches: [{ path: { pathPrefix: /limited } }]
    policies: { rateLimit: { local: [{ requests: 1, unit: Hours }] } }
    backends: [{ host: "${backend.host}" }]
  - name: mirrored
    matches: [{ path: { pathPrefix: /mirrored } }]
    policies: { requestMirror: [{ host: "${backend.host}", compare: true }] }
    backends: [{ host: "${backend.host}" }]
  - name: denied
    matches: [{ path: { pathPrefix: /denied } }]
    policies: { authorization: { rules: ["false"] } }
    backends: [{ host: "${backend.host}" }]
  - name: down
    matches: [{ path: { pathPrefix: /down } }]
    policies: { retry: { attempts: 2 } }
    backends: [{ host: "127.0.0.1:1" }]
`);
  t.after(() => gateway.close());
  for (const path of ["/limited", "/limited", "/mirrored", "/denied", "/down", "/unmatched"])
    await fetch(`${gateway.url()}${path}`).then((response) => response.text());
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  await client.request("tools/list");
  await client.call("unknown-tool");
  await modernPost(`${gateway.url()}/mcp`, "tools/list");
  const messages = [{ role: "user", content: "hi" }];
  for (const model of ['de"m\\o', 'de"m\\o', "reliable", "unknown"])
    for (const stream of [false, true])
      await fetch(`${gateway.url()}/v1/chat/completions`, {
        method: "POST",
        headers: { "x-api-key": "sk-very-secret-1", "content-type": "application/json" },
        body: JSON.stringify({ model, stream, messages }),
      }).then((response) => response.text());
  return (await fetch(`${gateway.adminUrl}/metrics`)).text();
}

test("metrics follow the rules of Prometheus for names, HELP, TYPE, and labels", async (t) => {
  const families = new Map<string, { help?: string; type?: string; samples: number }>();
  let current = "";
  for (const line of (await scrape(t)).trimEnd().split("\n")) {
    const [, kind, name = "", text = ""] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (kind !== undefined) {
      const family = families.get(name) ?? { samples: 0 };
      const field = kind === "HELP" ? "help" : "type";
      assert.equal(family[field], undefined, `${name} has two lines ${kind}`);
      assert.equal(family.samples, 0, `${kind} of ${name} follows a sample`);
      families.set(name, { ...family, [field]: text });
      current = name;
      continue;
    }
    const [, sample = "", labels = "", value] =
      /^([a-z][a-z0-9_]*)(?:\{((?:[a-z_][a-z0-9_]*="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)$/.exec(line) ?? [];
    assert.ok(value !== undefined && !Number.isNaN(Number(value)), line);
    const family = families.get(current);
    assert.ok(family?.help !== undefined && family.type !== undefined, `${line} has no HELP or TYPE`);
    const base = family.type === "histogram" ? sample.replace(/_(?:bucket|sum|count)$/, "") : sample;
    assert.equal(base, current, `${sample} stands in another family`);
    family.samples += 1;
    const names = [...labels.matchAll(/([a-z_][a-z0-9_]*)="/g)].map(([, label]) => label);
    assert.equal(new Set(names).size, names.length, `${line} repeats a label`);
    assert.ok(!names.includes("quantile") || family.type === "summary", `${line}: quantile outside a summary`);
    assert.ok(!names.includes("le") || sample.endsWith("_bucket"), `${line}: le outside a histogram`);
    assert.equal(sample.endsWith("_total"), family.type === "counter", `${sample} is a ${family.type}`);
    assert.doesNotMatch(sample, /_(?:ms|milliseconds|minutes|kb|mb|percent)(?:_|$)/, "base units only");
  }
  assert.ok(families.size > 35);
});

test("promtool accepts the metrics", { skip: hasPromtool() ? false : "promtool is not installed" }, async (t) => {
  const input = await scrape(t);
  const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], { input, encoding: "utf8" });
  assert.deepEqual([status, stdout, stderr], [0, "", ""]);
});

function hasPromtool(): boolean {
  return spawnSync("promtool", ["--version"]).status === 0;
}
