/**
 * Two tenants of one gateway name their budgets alike, and have API keys in the store. Spending and keys belong to the
 * namespace; those of a standalone configuration to nobody else.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { gatewayFor } from "../support/scenario.ts";
import { ask, type Tenant, type TenantAnswer, tenantDocuments } from "../support/tenants.ts";

const DEMO = (): object => ({ ai: { provider: { demo: {} } } });
const CHAT = JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hello" }] });
const PATH = "/v1/chat/completions";

const call = (gateway: TestGateway, tenant: Tenant, key = "k"): Promise<TenantAnswer> =>
  ask(gateway, tenant, PATH, { "content-type": "application/json", authorization: `Bearer ${key}` }, CHAT);

function remaining({ headers }: TenantAnswer): number {
  return Number(headers["x-budget-remaining"]);
}

test("budgets with equal names in two namespaces are two budgets, also for equal keys", async (t) => {
  const limits: Record<Tenant, number> = { a: 40, b: 1_000_000 };
  const gateway = await gatewayFor(
    t,
    tenantDocuments(
      (tenant) => ({
        traffic: { budgets: { limits: [{ name: "monthly", tokens: limits[tenant], per: "month", key: '"alice"' }] } },
      }),
      DEMO,
      `gateways: { edge: { port: 0 } }
routes:
  - hostnames: [standalone.test]
    policies: { budgets: { limits: [{ name: monthly, tokens: 1000, per: month, key: '"alice"' }] } }
    backends: [{ ai: { provider: { demo: {} } } }]
`,
    ),
  );
  for (let i = 0; i < 5; i++) assert.equal((await call(gateway, "b")).status, 200);
  const first = await call(gateway, "a");
  assert.equal(first.status, 200, first.body);
  const spent = 40 - remaining(first);
  assert.ok(spent > 0 && spent < 40);
  let answer = first;
  for (let i = 0; i < 20 && answer.status === 200; i++) answer = await call(gateway, "a");
  assert.equal(answer.status, 429, "a reaches its own budget");
  const other = await call(gateway, "b");
  assert.equal(other.status, 200);
  const budgets = (await (await fetch(`${gateway.adminUrl}/debug/budgets`)).json()) as {
    budgets: { owner: string; keys: { spent: number }[] }[];
  };
  const [a, b, standalone] = ["Policy a/", "Policy b/", "route"].map((name) =>
    budgets.budgets.find(({ owner }) => owner.includes(name)),
  );
  assert.ok((a?.keys[0]?.spent ?? 0) >= 40);
  assert.ok((b?.keys[0]?.spent ?? 0) > (a?.keys[0]?.spent ?? 0));
  assert.deepEqual(standalone?.keys, []);
});

test("a stored API key is accepted in its namespace only, and one without a namespace in files", async (t) => {
  const gateway = await gatewayFor(
    t,
    tenantDocuments(() => ({ traffic: { apiKeyAuthentication: { stored: true } } }), DEMO),
  );
  const make = async (make: object): Promise<string> => {
    const response = await fetch(`${gateway.adminUrl}/keys`, { method: "POST", body: JSON.stringify({ make }) });
    return ((await response.json()) as { key: string }).key;
  };
  const keys = { a: await make({ name: "k", namespace: "a" }), b: await make({ name: "k", namespace: "b" }) };
  const operator = await make({ name: "k", budget: { tokens: 40, per: "month" } });
  assert.equal((await call(gateway, "a", keys.a)).status, 200);
  assert.equal((await call(gateway, "a", keys.b)).status, 401);
  assert.equal((await call(gateway, "b", keys.a)).status, 401);
  // One key has one budget, wherever it is accepted.
  const first = await call(gateway, "a", operator);
  const second = await call(gateway, "b", operator);
  assert.deepEqual([first.status, second.status], [200, 200]);
  assert.ok(remaining(second) < remaining(first), `${remaining(first)} then ${remaining(second)}`);
});
