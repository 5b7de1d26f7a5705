/**
 * API keys that are made, used, listed and revoked while the gateway runs: expiry, models, budgets, the store away.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

const MODELS = `models: [{ name: small, provider: demo }, { name: large, provider: demo }, { name: "claude-*", provider: demo }]`;

const yaml = (ai: string, config = "", apiKey = "stored: true"): string => `
config: { adminAddr: "127.0.0.1:0"${config} }
gateways: { default: { port: 0 } }
routes:
  - name: llm
    backends: [{ ${ai} }]
    policies: { apiKey: { ${apiKey} } }
`;

interface Made {
  readonly id: string;
  readonly key: string;
}

async function admin(gateway: TestGateway, body: object): Promise<{ status: number; json: Record<string, unknown> }> {
  const response = await fetch(`${gateway.adminUrl}/keys`, { method: "POST", body: JSON.stringify(body) });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

async function make(gateway: TestGateway, more: object = {}): Promise<Made> {
  const { status, json } = await admin(gateway, { make: { name: "alice", ...more } });
  assert.equal(status, 200, JSON.stringify(json));
  return json as unknown as Made;
}

function chat(
  gateway: TestGateway,
  key: string,
  model: string,
  init: { path?: string; body?: object } = {},
): Promise<Response> {
  return fetch(`${gateway.url()}${init.path ?? "/v1/chat/completions"}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-api-key": key },
    body: JSON.stringify(init.body ?? { model, messages: [{ role: "user", content: "hi" }] }),
  });
}

async function names(gateway: TestGateway, key: string): Promise<string[]> {
  const response = await fetch(`${gateway.url()}/v1/models`, { headers: { "x-api-key": key } });
  assert.equal(response.status, 200);
  const { data } = (await response.json()) as { data: { id: string }[] };
  return data.map(({ id }) => id);
}

test("a key is made, works, is listed without itself, and is revoked", async (t) => {
  const clock = shiftedClock();
  const gateway = await gatewayFor(t, yaml(`ai: { ${MODELS} }`), { clock });
  const { id, key } = await make(gateway, { metadata: { team: "research" } });
  assert.match(key, /^gw-[\w-]{43}$/);
  assert.equal((await chat(gateway, key, "small")).status, 200);
  assert.equal((await chat(gateway, `${key}x`, "small")).status, 401);
  assert.equal((await chat(gateway, "gw-", "small")).status, 401);
  const listed = await (await fetch(`${gateway.adminUrl}/keys`)).text();
  assert.ok(!listed.includes(key) && !listed.includes("digest"), listed);
  const [entry] = (JSON.parse(listed) as { keys: Record<string, unknown>[] }).keys;
  assert.equal(entry?.id, id);
  assert.deepEqual(entry?.metadata, { team: "research" });
  assert.equal((await admin(gateway, { revoke: id })).status, 200);
  clock.advance(2_000);
  assert.equal((await chat(gateway, key, "small")).status, 401);
  assert.equal((await admin(gateway, { revoke: id })).status, 400);
});

test("wrong orders are refused by name, and make nothing", async (t) => {
  const gateway = await gatewayFor(t, yaml(`ai: { ${MODELS} }`));
  for (const body of [
    {},
    { make: {} },
    { make: { name: "" } },
    { make: { name: "a", models: ["a*b*"] } },
    { make: { name: "a", budget: { per: "day" } } },
    { make: { name: "a", budget: { cost: 1, tokens: 1, per: "day" } } },
    { make: { name: "a", budget: { cost: -1, per: "day" } } },
    { make: { name: "a", admin: true } },
    { revoke: "" },
  ]) {
    const { status, json } = await admin(gateway, body);
    assert.equal(status, 400, JSON.stringify(body));
    assert.equal(typeof json.error, "string");
  }
  const crossSite = await fetch(`${gateway.adminUrl}/keys`, {
    method: "POST",
    headers: { origin: "https://elsewhere.test" },
    body: JSON.stringify({ make: { name: "a" } }),
  });
  assert.equal(crossSite.status, 403);
  const { keys } = (await (await fetch(`${gateway.adminUrl}/keys`)).json()) as { keys: unknown[] };
  assert.deepEqual(keys, []);
});

test("an expired key is refused from its instant on", async (t) => {
  const clock = shiftedClock();
  const gateway = await gatewayFor(t, yaml(`ai: { ${MODELS} }`), { clock });
  const { key } = await make(gateway, { expiresAtMs: clock.now() + 60_000 });
  assert.equal((await chat(gateway, key, "small")).status, 200);
  clock.advance(59_999);
  assert.equal((await chat(gateway, key, "small")).status, 200);
  clock.advance(1);
  assert.equal((await chat(gateway, key, "small")).status, 401);
  const { keys } = (await (await fetch(`${gateway.adminUrl}/keys`)).json()) as { keys: { expired?: boolean }[] };
  assert.equal(keys[0]?.expired, true);
});

test("models: calls of others are refused in the client's dialect, and lists are filtered", async (t) => {
  const gateway = await gatewayFor(t, yaml(`ai: { ${MODELS} }`));
  const { key } = await make(gateway, { models: ["small", "claude-*"] });
  const all = await make(gateway);
  assert.deepEqual(await names(gateway, key), ["small"]);
  assert.deepEqual(await names(gateway, all.key), ["small", "large"]);
  const one = (name: string): Promise<Response> =>
    fetch(`${gateway.url()}/v1/models/${name}`, { headers: { "x-api-key": key } });
  assert.deepEqual(
    [(await one("small")).status, (await one("large")).status, (await one("claude-x")).status],
    [200, 404, 200],
  );
  assert.equal((await chat(gateway, key, "small")).status, 200);
  assert.equal((await chat(gateway, key, "claude-sonnet")).status, 200);
  const refused = await chat(gateway, key, "large");
  assert.equal(refused.status, 403);
  const { error } = (await refused.json()) as { error: { code: string; message: string } };
  assert.equal(error.code, "model_not_allowed");
  assert.match(error.message, /"large"/);
  const messages = await chat(gateway, key, "large", {
    path: "/v1/messages",
    body: { model: "large", max_tokens: 5, messages: [{ role: "user", content: "hi" }] },
  });
  assert.deepEqual([messages.status, ((await messages.json()) as { type: string }).type], [403, "error"]);
  const google = await chat(gateway, key, "", {
    path: "/v1beta/models/large:generateContent",
    body: { contents: [{ role: "user", parts: [{ text: "hi" }] }] },
  });
  assert.deepEqual(
    [google.status, ((await google.json()) as { error: { status: string } }).error.status],
    [403, "PERMISSION_DENIED"],
  );
});

test("a key with models cannot send what names none: files, batches, forms without a model", async (t) => {
  const { host } = await backendFor(t, (_, response) => response.end("{}"));
  const gateway = await gatewayFor(t, yaml(`ai: { provider: { openAICompatible: { baseUrl: "http://${host}/v1" } } }`));
  const { key } = await make(gateway, { models: ["small"] });
  assert.deepEqual(await names(gateway, key), ["small"], "the provider's own list is not shown");
  for (const path of ["/v1/batches", "/v1/files", "/v1/audio/transcriptions", "/v1/chat/completions"]) {
    const response = await chat(gateway, key, "", { path, body: { input: "x" } });
    assert.equal(response.status, 403, path);
  }
  const upload = async (model: string | undefined): Promise<number> => {
    const form = new FormData();
    if (model !== undefined) form.set("model", model);
    form.set("file", new Blob(["x"]), "x.wav");
    const init = { method: "POST", headers: { "x-api-key": key }, body: form };
    return (await fetch(`${gateway.url()}/v1/audio/transcriptions`, init)).status;
  };
  assert.deepEqual([await upload("large"), await upload(undefined), await upload("small")], [403, 403, 200]);
});

test("a host route judges the model, too", async (t) => {
  const { host } = await backendFor(t, (_, response) => response.end("{}"));
  const gateway = await gatewayFor(t, yaml(`host: "${host}"`));
  const { key } = await make(gateway, { models: ["small"] });
  assert.equal((await chat(gateway, key, "small")).status, 200);
  assert.equal((await chat(gateway, key, "large")).status, 403);
});

test("the budget of a key counts all its calls and nobody else's, and is listed", async (t) => {
  const gateway = await gatewayFor(t, yaml(`ai: { ${MODELS} }`));
  const { key } = await make(gateway, { budget: { tokens: 1, per: "month" } });
  const other = await make(gateway, { budget: { tokens: 1000, per: "month" } });
  const first = await chat(gateway, key, "small");
  assert.equal(first.status, 200);
  assert.equal(first.headers.get("x-budget-name"), "key");
  await first.text();
  const spent = async (): Promise<number> => {
    const { keys } = (await (await fetch(`${gateway.adminUrl}/keys`)).json()) as { keys: { spent: number }[] };
    return keys[0]?.spent ?? 0;
  };
  await eventually("counted", async () => (await spent()) > 1);
  const refused = await chat(gateway, key, "small");
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get("x-gateway-error"), "budget_exceeded");
  assert.equal((await chat(gateway, other.key, "small")).status, 200);
});

test("keys of the configuration have expiry, models and a budget, too", async (t) => {
  const clock = shiftedClock();
  const tomorrow = new Date(clock.now() + 86_400_000).toISOString();
  const keys = `keys: [{ key: k-one, expires: "${tomorrow}", models: [small], budget: { tokens: 1000, per: day } }]`;
  const gateway = await gatewayFor(t, yaml(`ai: { ${MODELS} }`, "", keys), { clock });
  assert.equal((await chat(gateway, "k-one", "small")).headers.get("x-budget-limit"), "1000");
  assert.equal((await chat(gateway, "k-one", "large")).status, 403);
  clock.advance(86_400_000);
  assert.equal((await chat(gateway, "k-one", "small")).status, 401);
});

test("the folder has the key's digest and not the key, and a restart keeps it", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "keys-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const config = yaml(`ai: { ${MODELS} }`, `, store: { folder: "${folder}" }`);
  const first = await startGateway(config);
  const { key } = await make(first);
  await first.close();
  const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
  assert.ok(texts.some((text) => text.includes("api-keys/")) && !texts.some((text) => text.includes(key)));
  const second = await gatewayFor(t, config);
  assert.equal((await chat(second, key, "small")).status, 200);
});

test("while Redis is away nobody gets in, and a key that one replica made works at the other", {
  skip: skipWithoutRedis,
}, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const config = yaml(`ai: { ${MODELS} }`, `, store: { redis: "${redis.url}", timeout: 10s }`);
  const clock = shiftedClock();
  const [one, other] = [await gatewayFor(t, config, { clock }), await gatewayFor(t, config, { clock })];
  const { key } = await make(one);
  assert.equal((await chat(other, key, "small")).status, 200);
  await redis.stop();
  await eventually("degraded", async () =>
    (await (await fetch(`${other.adminUrl}/metrics`)).text()).includes('gateway_store_up{kind="redis"} 0'),
  );
  clock.advance(2_000);
  const refused = await chat(other, key, "small");
  assert.equal(refused.status, 503);
  assert.equal(refused.headers.get("retry-after"), "2");
});
