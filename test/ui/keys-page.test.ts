/**
 * Keys & spend shows the cost of each key, user, team, and model from the history database and exports it. Limits show
 * the used part in numbers and bars.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { csvOf, totalsBy } from "../../ui/src/pages/keys/spend-rows.ts";
import { eventually } from "../support/eventually.ts";
import { gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

const PRICES = JSON.stringify({
  providers: { demo: { models: { demo: { rates: { input: "2.00", output: "8.00" } } } } },
});

test("spend is shown by key, user, team and model, and exported as CSV", { skip }, async (context) => {
  const gateway = await gatewayFor(
    context,
    `
config: { history: {} }
gateways: { default: { port: 0 } }
routes:
  - name: chat
    policies:
      apiKey:
        keys:
          - { key: ada-0123456789, metadata: { name: laptop, user_id: ada, team: research } }
          - { key: ben-0123456789, metadata: { name: "=ci", user_id: ben, team: platform } }
      rateLimit: { local: [{ requests: 4, unit: Hours, key: apiKey.user_id }] }
    backends: [{ ai: { provider: { demo: {} }, modelCatalog: prices.json } }]
  - name: unused
    matches: [{ path: { exact: /unused } }]
    policies: { rateLimit: { local: [{ requests: 9, unit: Hours }] }, directResponse: { status: 200 } }
`,
    { files: { "prices.json": PRICES } },
  );
  const ask = async (key: string): Promise<void> => {
    const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "Hello" }] }),
    });
    await response.arrayBuffer();
  };
  for (const key of ["ada-0123456789", "ada-0123456789", "ada-0123456789", "ben-0123456789"]) await ask(key);
  await eventually("the requests are stored", async () => {
    const response = await fetch(`${gateway.adminUrl}/debug/usage`);
    return ((await response.json()) as { total: { requests: number } }).total.requests === 4;
  });

  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/keys`, { width: 1440 });
  await page.getByRole("row", { name: /^laptop 3/ }).waitFor();
  await page.getByRole("slider", { name: /^Spend by key\. laptop: up to \$/ }).waitFor();
  await page.getByText(/\$0\.\d+ for \d+ tokens in 4 requests/).waitFor();
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download CSV" }).click(),
  ]);
  const lines = readFileSync(await file.path(), "utf8").split("\r\n");
  assert.equal(lines[0], "day,key,requests,ok,rejected,failed,aborted,inputTokens,outputTokens,cost");
  assert.match(lines[1] ?? "", /^20\d\d-\d\d-\d\dT00:00:00\.000Z,laptop,3,3,0,0,0,\d+,\d+,0\.\d+$/);
  assert.match(lines[2] ?? "", /,'=ci,1,/, "a spreadsheet does not run a name as a formula");
  for (const [tab, name] of [
    ["By user", "ada 3"],
    ["By team", "research 3"],
    ["By model", "demo 4"],
  ] as const) {
    await page.getByRole("tab", { name: tab }).click();
    await page.getByRole("row", { name: new RegExp(`^${name}`) }).waitFor();
  }
  await page.getByRole("button", { name: "24 h", exact: true }).click();
  await page.waitForURL(/period=24h/);
  await page.getByRole("row", { name: /^demo 4/ }).waitFor();
  await page.getByRole("button", { name: "Create key" }).click();
  await page.getByLabel("Name").waitFor();
  await checkLooks(page, "keys-create");
  await page.mouse.click(5, 5);
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await checkLooks(page, "keys");

  await page.goto(`${gateway.adminUrl}/ui/limits`);
  const row = page.locator(".buckets li", { hasText: "ada" });
  await row.getByText("75%").waitFor();
  await row.getByText("3 of 4").waitFor();
  assert.match((await row.textContent()) ?? "", /resets in (?:\d+ min|\d+ s|1 h)/);
  assert.equal(await row.locator(".gauge.warn").count(), 1);
  assert.deepEqual(await page.locator(".buckets li > :first-child").allTextContents(), ["ada", "ben"]);
  await page.getByText("1 limit not in use now").waitFor();
  await ask("ada-0123456789");
  await row.locator(".gauge.bad").waitFor();
  await row.getByText(/exhausted, available in/).waitFor();
  await checkLooks(page, "limits");
  await page.getByLabel("Filter by route").fill("nothing");
  await page.getByText("0 of 0 limits in use now").waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});

test("names in the CSV are quoted, and totals are sorted by cost", () => {
  const sums = { ok: 1, rejected: 0, failed: 0, aborted: 0, inputTokens: 1, outputTokens: 2 };
  const rest = {
    cachedTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: 0,
    durationMs: 1,
    responseBytes: 1,
    lastAt: null,
  };
  const row = (key: string, cost: number) => ({ key, requests: 1, cost, ...sums, ...rest });
  const rows = [row('a,"b"', 1), row("-x", 3), row('a,"b"', 1)];
  assert.deepEqual(
    csvOf({ by: ["key"], rows })
      .split("\r\n")
      .slice(1, 3),
    ['"a,""b""",1,1,0,0,0,1,2,1', "'-x,1,1,0,0,0,1,2,3"],
  );
  assert.deepEqual(
    totalsBy(rows, "key").map(({ name, cost }) => [name, cost]),
    [
      ["-x", 3],
      ['a,"b"', 2],
    ],
  );
});
