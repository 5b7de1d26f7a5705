/** `budgets`: the schema, and charges against a fake store. test/scenario/budgets.test.ts covers whole requests. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, anExchange, type ExchangeParts, testEnv } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { Owner } from "../../base/owner.ts";
import { compileExpression } from "../../cel/expression.ts";
import { createLimitRegistry } from "../../config/compile/limit-registry.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { CompileEnv, Hooks, Outcome } from "../../core/policy.ts";
import { LlmRequestAttributes } from "../../llm/request/llm-call.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";
import { budgets } from "./policy.ts";

for (const [why, config] of Object.entries({
  "no limits": { limits: [] },
  "neither cost nor tokens": { limits: [{ name: "a", per: "day" }] },
  "both cost and tokens": { limits: [{ name: "a", per: "day", cost: 1, tokens: 1 }] },
  "a zero": { limits: [{ name: "a", per: "day", tokens: 0 }] },
  "a cost of zero": { limits: [{ name: "a", per: "day", cost: 0 }] },
  "no period": { limits: [{ name: "a", tokens: 5 }] },
  "an hour": { limits: [{ name: "a", tokens: 5, per: "hour" }] },
  "a name with a slash": { limits: [{ name: "a/b", tokens: 5, per: "day" }] },
  "two of one name": {
    limits: [
      { name: "a", tokens: 5, per: "day" },
      { name: "a", tokens: 6, per: "day" },
    ],
  },
  "a webhook without http": { limits: [{ name: "a", tokens: 5, per: "day" }], webhook: { url: "file:///x" } },
}))
  test(`rejects ${why}`, () => assert.equal(budgets.schema.safeParse(config).success, false));

const DONE: Outcome = { status: 200, end: "complete", responseBytes: 1 };

interface Setup {
  readonly hooks: Hooks;
  readonly store: Store;
  readonly env: CompileEnv;
}

function setUp(limit: object, rest: object = {}, wrap: (store: Store) => Store = (store) => store): Setup {
  const clock = fakeClock(Date.UTC(2026, 10, 15));
  const store = wrap(createMemoryStore(clock));
  const env: CompileEnv = {
    ...testEnv,
    cel: compileExpression,
    clock,
    store: ownedStore(store, Owner.standalone),
    limits: createLimitRegistry(),
  };
  const config = budgets.schema.parse({ limits: [{ name: "b", tokens: 100, per: "day", ...limit }], ...rest });
  return { hooks: budgets.compile(config, env), store, env };
}

function call(parts: ExchangeParts = {}, estimate = 10): Exchange {
  const llm = new LlmRequestAttributes("m", false, Buffer.alloc(0));
  llm.estimatedTokens = estimate;
  return anExchange({ llm, ...parts });
}

async function admit({ hooks }: Setup, exchange: Exchange): Promise<void> {
  const charge = hooks.admit?.call?.(exchange);
  charge?.take();
  await charge?.confirm?.();
}

function settle({ hooks }: Setup, exchange: Exchange, input: number | undefined, outcome = DONE): void {
  const { llm } = exchange.attributes;
  if (llm && input !== undefined) Object.assign(llm, { inputTokens: input, outputTokens: 0 });
  hooks.settle?.(exchange, outcome);
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function spent({ env }: Setup, key?: string): Promise<Record<string, number>> {
  await turn();
  const [view] = await env.limits.budgets(key);
  return Object.fromEntries((view?.keys ?? []).map((one) => [one.key, one.spent]));
}

test("the estimate is reserved and then replaced by the actual usage", async () => {
  const setup = setUp({});
  const exchange = call();
  await admit(setup, exchange);
  assert.deepEqual(await spent(setup), { "(no key)": 10 });
  settle(setup, exchange, 42);
  assert.deepEqual(await spent(setup), { "(no key)": 42 });
});

test("a call passes while one token is left, and the next is rejected with headers", async () => {
  const setup = setUp({});
  const first = call();
  await admit(setup, first);
  settle(setup, first, 99);
  await turn();
  const last = call();
  await admit(setup, last);
  const refused = call();
  await assert.rejects(admit(setup, refused), (error: Error & { code: string; headers: Record<string, string> }) => {
    assert.equal(error.code, "budget_exceeded");
    assert.equal(error.headers["x-budget-name"], "b");
    assert.equal(error.headers["x-budget-limit"], "100");
    assert.equal(error.headers["x-budget-remaining"], "0");
    assert.equal(error.headers["retry-after"], "86400");
    return true;
  });
  assert.deepEqual(await spent(setup), { "(no key)": 109 });
});

test("a rejection refunds the other budgets", async () => {
  const clock = fakeClock();
  const store = createMemoryStore(clock);
  const env: CompileEnv = {
    ...testEnv,
    clock,
    store: ownedStore(store, Owner.standalone),
    limits: createLimitRegistry(),
  };
  const limits = [
    { name: "large", tokens: 1000, per: "month" },
    { name: "small", tokens: 1, per: "day" },
  ];
  const setup = { hooks: budgets.compile(budgets.schema.parse({ limits }), env), store, env };
  await admit(setup, call());
  await assert.rejects(admit(setup, call()));
  await turn();
  const views = await env.limits.budgets();
  assert.deepEqual(
    views.map(({ name, keys }) => [name, keys[0]?.spent]),
    [
      ["large", 10],
      ["small", 10],
    ],
  );
});

test("requests without the claim share one budget, and no key value can collide with it", async () => {
  const setup = setUp({ key: "jwt.sub" });
  for (const parts of [{}, { jwt: { sub: "" } }, { jwt: { sub: "-" } }, { jwt: { sub: "alice" } }])
    await admit(setup, call(parts));
  assert.deepEqual(await spent(setup), { "(no key)": 20, "-": 10, alice: 10 });
});

test("a key that may be a credential is not in the store", async () => {
  const setup = setUp({ key: 'request.headers["x-team"]' });
  await admit(setup, call({ headers: { "x-team": "secret-value" } }));
  const { entries } = await setup.store.list("");
  assert.ok(entries.length > 0 && !JSON.stringify(entries).includes("secret-value"), JSON.stringify(entries));
});

test("a client that disconnects during the store call leaves no reservation", async () => {
  let answer: () => void = () => undefined;
  const setup = setUp({}, {}, (store) => ({
    ...store,
    add: async (key, amount, options) => {
      if (amount > 0) await new Promise<void>((resolve) => (answer = resolve));
      return store.add(key, amount, options);
    },
  }));
  const exchange = call();
  const admitted = admit(setup, exchange);
  settle(setup, exchange, undefined, { status: undefined, end: "aborted", responseBytes: 0 });
  answer();
  await admitted;
  assert.deepEqual(await spent(setup), {});
});

test("unknown usage keeps the estimate; an error without usage is free", async () => {
  const setup = setUp({});
  const left = call();
  await admit(setup, left);
  settle(setup, left, undefined, { status: undefined, end: "aborted", responseBytes: 0 });
  assert.deepEqual(await spent(setup), { "(no key)": 10 });
  const failed = call();
  await admit(setup, failed);
  settle(setup, failed, undefined, { status: 502, end: "complete", responseBytes: 0 });
  assert.deepEqual(await spent(setup), { "(no key)": 10 });
});

test("a call settles once, and a refunded call does not settle", async () => {
  const setup = setUp({});
  const exchange = call();
  const charge = setup.hooks.admit?.call?.(exchange);
  await charge?.confirm?.();
  charge?.giveBack();
  settle(setup, exchange, 50);
  assert.deepEqual(await spent(setup), {});
});

test("reserveOutput admits only calls whose maximum output fits", async () => {
  const setup = setUp({ reserveOutput: true });
  const body = Buffer.from(JSON.stringify({ model: "m", max_tokens: 60, messages: [] }));
  const sized = (): Exchange => {
    const llm = new LlmRequestAttributes("m", false, body);
    llm.estimatedTokens = 10;
    return anExchange({ llm });
  };
  await admit(setup, sized());
  await assert.rejects(admit(setup, sized()), { code: "budget_exceeded" });
});

test("a soft budget never rejects", async () => {
  const setup = setUp({ hard: false, tokens: 5 });
  for (let i = 0; i < 3; i++) await admit(setup, call());
  assert.deepEqual(await spent(setup), { "(no key)": 30 });
});

const away = (store: Store): Store => ({ ...store, add: () => Promise.reject(new StoreUnavailable("gone")) });

test("without the store, calls are rejected, or pass with failureMode open", async () => {
  await assert.rejects(admit(setUp({}, {}, away), call()), { code: "budget_unavailable" });
  await admit(setUp({}, { failureMode: "open" }, away), call());
  await admit(setUp({ hard: false }, {}, away), call());
});

test("a budget in dollars rejects models without a price, unless configured otherwise", async () => {
  const dollars = { tokens: undefined, cost: 1 };
  await assert.rejects(async () => admit(setUp(dollars), call()), { code: "unpriced_model" });
  await admit(setUp(dollars, { unpriced: "allow" }), call());
  await admit(setUp({ ...dollars, hard: false }), call());
  const free = new LlmRequestAttributes(undefined, false, Buffer.alloc(0));
  free.setCost("free");
  await admit(setUp(dollars), anExchange({ llm: free }));
});

test("a hard budget rejects requests with an unknown cost, unless configured otherwise", async () => {
  const unknown = new LlmRequestAttributes("m", false, Buffer.alloc(0));
  unknown.setCost("unmetered");
  for (const unit of [{}, { tokens: undefined, cost: 1 }]) {
    await assert.rejects(async () => admit(setUp(unit), anExchange({ llm: unknown })), {
      code: "unpriced_request",
      message: /`budgets\.unpriced: allow`/,
    });
    await admit(setUp(unit, { unpriced: "allow" }), anExchange({ llm: unknown }));
    await admit(setUp({ ...unit, hard: false }), anExchange({ llm: unknown }));
  }
});

test("x-budget headers from a backend are removed", () => {
  const { hooks } = setUp({});
  const exchange = anAnsweredExchange({ responseHeaders: { "x-budget-remaining": "9999" } });
  void hooks.response?.head(exchange);
  assert.equal(exchange.response?.headers.get("x-budget-remaining"), undefined);
});
