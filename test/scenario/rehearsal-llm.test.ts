/**
 * Rehearsals of LLM requests: the body was not recorded, and yet aliases, overrides, policies of models and budgets in money
 * decide as they did about the real request.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { RehearsalReport } from "../../src/app/rehearsal/rehearsal-report.ts";
import { startUpstream } from "../support/llm/upstream.ts";
import { gatewayFor } from "../support/scenario.ts";

interface Parts {
  readonly aliases?: object;
  readonly overrides?: object;
  readonly rule?: string;
  readonly budgets?: readonly object[];
  readonly limit?: object;
}

function configOf(host: string, { aliases, overrides, rule, budgets, limit }: Parts): string {
  const model = (name: string, policies?: object): object => ({
    name,
    provider: "openAI",
    params: { model: "gpt-4o-mini", apiKey: "k", hostOverride: host },
    ...(policies ? { policies } : {}),
  });
  const policies = {
    ai: { ...(aliases ? { modelAliases: aliases } : {}), ...(overrides ? { overrides } : {}) },
    ...(budgets ? { budgets: { limits: budgets } } : {}),
  };
  const secret = {
    authorization: { rules: [rule ?? 'request.headers["x-team"] == "research"'] },
    ...(limit ? { rateLimit: { local: [limit] } } : {}),
  };
  return JSON.stringify({ llm: { port: 0, policies, models: [model("open"), model("secret", secret)] } });
}

async function rehearsal(
  t: TestContext,
  parts: Parts,
  models: readonly [model: string, team: string, status: number][],
) {
  const upstream = await startUpstream();
  t.after(() => upstream.close());
  const gateway = await gatewayFor(t, configOf(upstream.host, parts));
  for (const [model, team, status] of models) {
    const answer = await fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-team": team },
      body: JSON.stringify({ model, max_tokens: 50, messages: [{ role: "user", content: "hello" }] }),
    });
    assert.equal(answer.status, status, await answer.text());
  }
  return async (changed: Parts): Promise<RehearsalReport> => {
    const text = configOf(upstream.host, changed);
    const answer = await fetch(`${gateway.adminUrl}/debug/rehearse`, { method: "POST", body: text });
    assert.equal(answer.status, 200, await answer.clone().text());
    return (await answer.json()) as RehearsalReport;
  };
}

const refused = ({ denied }: RehearsalReport): number => denied.reduce((sum, { requests }) => sum + requests, 0);

test("an alias leads to the policies of its model, in the same configuration and in a changed one", async (t) => {
  const aliases = { old: "secret", "x-*": "secret" };
  const rehearse = await rehearsal(t, { aliases }, [
    ["old", "research", 200],
    ["old", "sales", 403],
    ["x-1", "research", 200],
    ["x-2", "sales", 403],
    ["open", "sales", 200],
  ]);
  const same = await rehearse({ aliases });
  assert.deepEqual([same.requests, same.unchanged], [5, 5], JSON.stringify(same));

  const stricter = await rehearse({ aliases, rule: 'request.headers["x-team"] == "board"' });
  assert.deepEqual([stricter.unchanged, refused(stricter)], [3, 2], JSON.stringify(stricter));

  const looser = await rehearse({ aliases, rule: "true" });
  assert.deepEqual([looser.unchanged, looser.admitted.reduce((sum, { requests }) => sum + requests, 0)], [3, 2]);

  // Only the requests that reach the model are counted by its limit.
  const limited = await rehearse({ aliases, limit: { requests: 1, unit: "Hours" } });
  assert.equal(
    limited.limits.reduce((sum, one) => sum + one.refused, 0),
    1,
    JSON.stringify(limited),
  );
});

test("a new alias is seen, and an override of the model", async (t) => {
  const rehearse = await rehearsal(t, {}, [
    ["open", "sales", 200],
    ["open", "research", 200],
  ]);
  assert.equal(refused(await rehearse({ aliases: { open: "secret" } })), 1);
  assert.equal(refused(await rehearse({ overrides: { model: "secret" } })), 1);
  assert.equal(refused(await rehearse({})), 0);
});

test("a hard budget in money knows the price of a recorded request", async (t) => {
  const rehearse = await rehearsal(t, {}, [["open", "sales", 200]]);
  const added = await rehearse({ budgets: [{ name: "all", cost: 100, per: "day" }] });
  assert.deepEqual([added.requests, refused(added), added.limits], [1, 0, []], JSON.stringify(added));
});
