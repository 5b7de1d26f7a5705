/**
 * Budgets and history agree: what the store counted equals the charges in the rows, with retries, failover, streams that
 * the client leaves, and two replicas. After a crash the difference is that of the missing rows.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { gwctl } from "../support/gwctl.ts";
import { startChatProvider, TOKENS_PER_CALL } from "../support/history/chat-provider.ts";
import { sharedPostgres, temporaryFolder, usageOf } from "../support/history/history-database.ts";
import { skipWithoutPostgres } from "../support/history/postgres-server.ts";
import { gatewayFor } from "../support/scenario.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

interface Comparison {
  readonly compared: number;
  readonly differing: number;
  readonly accounts: readonly {
    readonly budget: string;
    readonly key: string;
    readonly ledger: number;
    readonly difference: number;
  }[];
}

const KEYS = ["ada", "bob"].map((user) => `{ key: key-of-${user}-0000, metadata: { user_id: ${user} } }`).join(", ");

const yamlFor = (store: string, history: string, provider: string): string => `
config: { adminAddr: "127.0.0.1:0", logging: { level: "info,access=off" }, store: ${store}, history: ${history} }
gateways: { default: { port: 0 } }
routes:
  - name: llm
    policies:
      apiKey: { keys: [${KEYS}] }
      retry: { attempts: 1, backoff: 1ms, codes: [503] }
      budgets:
        limits:
          - { name: all, tokens: 100000, per: month }
          - { name: each, tokens: 100000, per: day, key: apiKey.user_id }
    backends:
      - ai:
          groups:
            - providers: [{ provider: { openAICompatible: { baseUrl: "http://${provider}/v1" } } }]
            - providers: [{ provider: { openAICompatible: { baseUrl: "http://${provider}/v1" } } }]
`;

async function chat(url: string, user: string, body: Readonly<Record<string, unknown>>, signal?: AbortSignal) {
  return fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer key-of-${user}-0000` },
    body: JSON.stringify({ messages: [{ role: "user", content: "hi" }], ...body }),
    ...(signal === undefined ? {} : { signal }),
  });
}

async function comparisonOf(adminUrl: string): Promise<Comparison> {
  return (await (await fetch(`${adminUrl}/debug/usage/budgets`)).json()) as Comparison;
}

test("budgets of two replicas equal their history with retries, failover and aborted streams", {
  skip: skipWithoutRedis || skipWithoutPostgres,
}, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const provider = await startChatProvider(t);
  const postgres = (await sharedPostgres()).database("budgets");
  const store = JSON.stringify({ redis: redis.url, timeout: "20s" });
  const replica = () =>
    gatewayFor(t, yamlFor(store, JSON.stringify({ folder: temporaryFolder(t), postgres }), provider.host));
  const replicas = await Promise.all([replica(), replica()]);
  let sent = 0;
  for (const { url } of replicas)
    for (const user of ["ada", "bob"]) {
      for (const model of ["plain", "flaky", "broken", "flaky"]) await (await chat(url(), user, { model })).text();
      await (await chat(url(), user, { model: "streamed", stream: true })).text();
      const leaving = new AbortController();
      const endless = await chat(url(), user, { model: "endless", stream: true }, leaving.signal);
      await endless.body?.getReader().read();
      leaving.abort();
      sent += 6;
    }
  const [first, second] = replicas;
  const adminUrl = first?.adminUrl ?? "";
  await eventually("all rows are stored", async () => (await usageOf(adminUrl, "")).total.requests === sent);
  await eventually("all rows of the other replica are stored", async () => {
    await usageOf(second?.adminUrl ?? "", "");
    return (await comparisonOf(adminUrl)).differing === 0;
  });
  const { compared, accounts } = await comparisonOf(adminUrl);
  assert.equal(compared, 3);
  const all = accounts.find(({ budget }) => budget === "all")?.ledger ?? 0;
  const each = accounts.filter(({ budget }) => budget === "each").reduce((sum, { ledger }) => sum + ledger, 0);
  assert.ok(all > 0);
  assert.equal(each, all);
  const shown = await gwctl(["history", "budgets", "-p", new URL(adminUrl).port]);
  assert.equal(shown.stderr, "3 accounts compared: budgets and history agree\n");
});

test("after kill -9 the difference is that of the missing rows", async (t) => {
  const provider = await startChatProvider(t);
  const folder = temporaryFolder(t);
  const file = configFile(
    t,
    yamlFor(
      JSON.stringify({ folder: `${folder}/store` }),
      JSON.stringify({ folder: `${folder}/history` }),
      provider.host,
    ),
  );
  const first = startGatewayProcess(t, ["-f", file]);
  const url = `http://127.0.0.1:${await first.port()}`;
  const before = await first.adminUrl();
  const ask = async (): Promise<void> => void (await (await chat(url, "ada", { model: "plain" })).text());
  for (let i = 0; i < 10; i++) await ask();
  await eventually("stored", async () => (await usageOf(before, "")).total.requests === 10);
  for (let i = 0; i < 10; i++) await ask();
  first.child.kill("SIGKILL");
  await first.exited;
  const second = startGatewayProcess(t, ["-f", file]);
  const adminUrl = await second.adminUrl();
  await second.logged("started version=");
  const { total } = await usageOf(adminUrl, "");
  const { accounts } = await comparisonOf(adminUrl);
  assert.ok(total.requests >= 10 && total.requests <= 20, String(total.requests));
  for (const { ledger, difference } of accounts) {
    assert.equal(ledger - difference, total.requests * TOKENS_PER_CALL);
    // The charge of a call that ended in the last moment can be missing from the store too.
    assert.ok(difference <= (20 - total.requests) * TOKENS_PER_CALL, `${difference} of ${total.requests}`);
  }
});
