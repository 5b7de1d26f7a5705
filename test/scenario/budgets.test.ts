/**
 * Budgets of a real gateway: dollars and tokens, headers, errors in the client's format, alerts, restarts, the end of a
 * month, streams that are aborted, answers without usage.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway } from "../support/gateway.ts";
import {
  answerWith,
  ask,
  configOf,
  PRICES,
  provider,
  setUp,
  spends,
  spentOf,
  USAGE,
  type Views,
} from "../support/llm/budgets.ts";
import { shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";
import { gatewayFor } from "../support/scenario.ts";

test("dollars: three calls of 0.001 pass a budget of 0.0025, the fourth is refused, streams too", async (t) => {
  const gateway = await setUp(t, answerWith(USAGE), "{ limits: [{ name: all, cost: 0.0025, per: month }] }");
  const first = await ask(gateway);
  assert.equal(first.status, 200);
  assert.equal(first.headers.get("x-budget-name"), "all");
  assert.equal(first.headers.get("x-budget-unit"), "usd");
  assert.equal(first.headers.get("x-budget-limit"), "0.0025");
  assert.match(first.headers.get("x-budget-remaining") ?? "", /^0\.0024\d*$/);
  assert.ok(Number(first.headers.get("x-budget-reset")) <= 31 * 86_400);
  assert.equal(first.headers.get("x-ratelimit-limit"), null);
  await first.text();
  await spends(gateway, { "(no key)": 0.001 });
  await (await ask(gateway, { stream: true })).text();
  await spends(gateway, { "(no key)": 0.002 });
  await (await ask(gateway)).text();
  await spends(gateway, { "(no key)": 0.003 });
  for (const stream of [false, true]) {
    const refused = await ask(gateway, { stream });
    assert.equal(refused.status, 429);
    assert.equal(refused.headers.get("x-gateway-error"), "budget_exceeded");
    assert.equal(refused.headers.get("x-budget-remaining"), "0");
    assert.equal(refused.headers.get("retry-after"), refused.headers.get("x-budget-reset"));
    const { error } = (await refused.json()) as { error: { code: string; type: string; message: string } };
    assert.equal(error.code, "budget_exceeded");
    assert.equal(error.type, "rate_limit_error");
    assert.match(error.message, /the budget "all" of 0\.0025 usd per month is exhausted; it is restored at 20/);
  }
  await spends(gateway, { "(no key)": 0.003 });
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_budget_refused_total\{budget="all"\} 2/);
  assert.match(metrics, /gateway_budget_spent_total\{budget="all",key="\(no key\)",unit="usd"\} 0\.003/);
});

test("a refusal speaks the client's dialect", async (t) => {
  const gateway = await setUp(t, answerWith(USAGE), "{ limits: [{ name: all, tokens: 1, per: day }] }");
  await (await ask(gateway)).text();
  await spends(gateway, { "(no key)": 190 });
  const messages = await fetch(`${gateway.url()}/v1/messages`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "gpt-test", max_tokens: 5, messages: [{ role: "user", content: "hi" }] }),
  });
  assert.equal(messages.status, 429);
  assert.equal(((await messages.json()) as { type: string }).type, "error");
});

test("each key has its own budget, and requests without one share another", async (t) => {
  const keys = "[{ key: key-alice, metadata: { user: alice } }, { key: key-bob, metadata: { user: bob } }]";
  const gateway = await setUp(
    t,
    answerWith(USAGE),
    "{ limits: [{ name: per-user, tokens: 200, per: day, key: apiKey.user }] }",
    { more: `      apiKey: { mode: optional, keys: ${keys} }` },
  );
  const as = async (key?: string): Promise<number> => {
    const response = await ask(gateway, {}, { headers: key === undefined ? {} : { "x-api-key": key } });
    await response.text();
    return response.status;
  };
  assert.equal(await as("key-alice"), 200);
  assert.equal(await as(), 200);
  await spends(gateway, { alice: 190, "(no key)": 190 });
  assert.equal(await as("key-alice"), 200);
  assert.equal(await as(), 200);
  await spends(gateway, { alice: 380, "(no key)": 380 });
  assert.deepEqual([await as("key-alice"), await as(), await as("key-bob")], [429, 429, 200]);
  assert.deepEqual(await spentOf(gateway, "?key=ali"), { alice: 380 });
});

test("an answer without usage is charged by its text, and an error of the provider costs nothing", async (t) => {
  let fails = false;
  const gateway = await setUp(
    t,
    (request, response, body) => {
      if (fails) response.writeHead(500).end("no");
      else answerWith(undefined)(request, response, body);
    },
    "{ limits: [{ name: all, tokens: 1000, per: day }] }",
  );
  await (await ask(gateway)).text();
  await eventually("something is charged", async () => ((await spentOf(gateway))["(no key)"] ?? 0) > 2);
  const before = await spentOf(gateway);
  fails = true;
  assert.equal((await ask(gateway)).status, 500);
  await eventually("given back", async () => JSON.stringify(await spentOf(gateway)) === JSON.stringify(before));
});

test("a stream is charged while it runs, and what was delivered when the client leaves", async (t) => {
  const word = (model: string, content: string): string =>
    `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", model, choices: [{ index: 0, delta: { content } }] })}\n\n`;
  let goOn: () => void = () => undefined;
  const gateway = await setUp(
    t,
    (_request, response, { model }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(word(model, "one two three four five six seven eight nine ten ".repeat(20)));
      goOn = () => response.write(word(model, "more"));
      response.on("error", () => undefined);
    },
    "{ limits: [{ name: all, tokens: 100000, per: day }] }",
  );
  const leaving = new AbortController();
  const response = await ask(gateway, { stream: true }, { signal: leaving.signal });
  const reader = response.body?.getReader();
  await reader?.read();
  // Without the end of the stream: only the charge of the running second can have done it.
  await eventually("charged while it runs", async () => ((await spentOf(gateway))["(no key)"] ?? 0) > 100);
  goOn();
  leaving.abort();
  await reader?.closed.catch(() => undefined);
  await eventually("settled", async () => {
    const { budgets } = (await (await fetch(`${gateway.adminUrl}/debug/budgets`)).json()) as Views;
    const spent = budgets[0]?.keys[0]?.spent ?? 0;
    return spent > 150 && spent < 600;
  });
});

test("a model without a price is refused by a budget in dollars, and passes where that is allowed", async (t) => {
  const strict = await setUp(t, answerWith(USAGE), "{ limits: [{ name: all, cost: 1, per: day }] }");
  const refused = await ask(strict, { model: "unknown-model" });
  assert.equal(refused.status, 403);
  const { error } = (await refused.json()) as { error: { message: string } };
  assert.match(error.message, /"unknown-model" has no price/);
  const lenient = await setUp(t, answerWith(USAGE), "{ unpriced: allow, limits: [{ name: all, cost: 1, per: day }] }");
  assert.equal((await ask(lenient, { model: "unknown-model" })).status, 200);
});

test("at the end of the month the budget is whole again; a clock that jumps back finds what was spent", async (t) => {
  const clock = shiftedClock();
  const gateway = await setUp(t, answerWith(USAGE), "{ limits: [{ name: all, tokens: 150, per: month }] }", { clock });
  const status = async (): Promise<number> => {
    const response = await ask(gateway);
    await response.text();
    return response.status;
  };
  assert.equal(await status(), 200);
  await spends(gateway, { "(no key)": 190 });
  assert.equal(await status(), 429);
  const now = new Date(clock.now());
  const nextMonth = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1) - clock.now();
  clock.advance(nextMonth - 1);
  assert.equal(await status(), 429, "the last millisecond of the month");
  clock.advance(1);
  assert.deepEqual(await spentOf(gateway), {});
  assert.equal(await status(), 200);
  await spends(gateway, { "(no key)": 190 });
  clock.advance(-nextMonth);
  assert.equal(await status(), 429, "back in the month before");
  clock.advance(nextMonth);
  assert.equal(await status(), 429);
});

test("alerts: a log line, a metric and one webhook per percentage, which may fail at first", async (t) => {
  const got: { percent: number; key: string; spent: number; budget: string }[] = [];
  let failures = 1;
  const hook = await startBackend((request, response) => {
    let text = "";
    request.on("data", (chunk) => (text += chunk));
    request.on("end", () => {
      if (failures-- > 0) {
        response.writeHead(503).end();
        return;
      }
      assert.equal(request.headers["x-token"], "t0ken");
      got.push(JSON.parse(text));
      response.end();
    });
  });
  t.after(hook.close);
  const gateway = await setUp(
    t,
    answerWith(USAGE),
    `{ limits: [{ name: all, tokens: 400, per: day, hard: false, alertAt: [90, 40] }], webhook: { url: "http://${hook.host}/alert", headers: { x-token: t0ken } } }`,
  );
  for (let i = 0; i < 3; i++) await (await ask(gateway)).text();
  await spends(gateway, { "(no key)": 570 });
  await eventually("both alerts", () => got.length === 2);
  assert.deepEqual(got.map(({ percent }) => percent).sort(), [40, 90]);
  assert.equal(got[0]?.budget, "all");
  assert.match(await gateway.logged("budget alert"), /budget=all.*percent=40/);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_budget_alerts_total\{budget="all",percent="40"\} 1/);
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.ok(!dump.includes("t0ken"), "the webhook's token is not shown");
});

test("spending survives a reload that changes the limit, and a restart with a folder", async (t) => {
  const host = await provider(t, answerWith(USAGE));
  const folder = mkdtempSync(join(tmpdir(), "budgets-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const yaml = (tokens: number): string =>
    configOf(
      host,
      `{ limits: [{ name: all, tokens: ${tokens}, per: month }] }`,
      "",
      `, store: { folder: "${folder}" }`,
    );
  const files = { "prices.json": PRICES };
  const first = await startGateway(yaml(150), { files });
  await (await ask(first)).text();
  await spends(first, { "(no key)": 190 });
  assert.equal((await ask(first)).status, 429);
  assert.equal(await first.reload(yaml(300)), "loaded");
  assert.equal((await ask(first)).status, 200);
  await first.close();
  const second = await gatewayFor(t, yaml(300), { files });
  await spends(second, { "(no key)": 380 });
  assert.equal((await ask(second)).status, 429);
});
