/**
 * Pages agree about states: a server that was just added is not failed, a call that fails inside a response with status
 * 200 is a failure everywhere, a provider that fails is failing, and the playground shows the gateway's version.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { VERSION } from "../../src/base/version.ts";
import { rawClient } from "../support/mcp/client.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

test("an added MCP server is not failed, and a call that fails inside a 200 is a failure on every page", {
  skip,
}, async (context) => {
  const tool = { name: "read", inputSchema: { type: "object" } };
  const [files, added] = [await startToolsServer([tool]), await startToolsServer([tool])];
  context.after(() => added.close());
  const config = (servers: readonly string[]): string => `mcp: { port: 0, targets: [${servers.join(", ")}] }\n`;
  const first = `{ name: files, mcp: { url: "${files.url}" } }`;
  const gateway = await gatewayFor(context, config([first]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  assert.equal(await gateway.reload(config([first, `{ name: added, mcp: { url: "${added.url}" } }`])), "loaded");

  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/mcp`, { width: 1440 });
  const row = page.getByRole("row", { name: /^added/ });
  await row.waitFor();
  assert.match((await row.locator("td").nth(1).textContent()) ?? "", /^(?:not started|running)/);
  assert.equal(await page.getByText("failed", { exact: true }).count(), 0);
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await row.getByText(/^running/).waitFor();
  await page.getByText(`${VERSION} · `).first().waitFor();
  await checkLooks(page, "mcp-added-server");
  await page.getByRole("button", { name: "Disconnect" }).click();

  await files.close();
  await client.call("files_read");
  await page.goto(`${gateway.adminUrl}/ui/`);
  await page.locator("a.tile", { hasText: "Errors" }).getByText("1 failed, 0 rejected").waitFor();
  await page
    .getByRole("region", { name: "Problems" })
    .getByText(/^1 request to .* failed/)
    .waitFor();
  await checkLooks(page, "overview-mcp-failure");
  await page.goto(`${gateway.adminUrl}/ui/requests?status=failed`);
  await page.getByRole("link", { name: "tools/call files_read" }).waitFor();
  assert.equal(await page.locator("table.requests tbody tr.link").count(), 1);
  assert.equal(await page.locator("table.requests tbody .status.bad").count(), 1);
  assert.deepEqual(errors, []);
  await page.close();
});

test("a provider that fails every call is failing, and the selected model has charts", { skip }, async (context) => {
  const provider = await backendFor(context, (_request, response) => {
    response.statusCode = 500;
    response.end("{}");
  });
  const gateway = await gatewayFor(
    context,
    `
llm:
  port: 0
  models:
    - { name: good, provider: { demo: {} } }
    - { name: broken, provider: openAI, params: { apiKey: k, hostOverride: "${provider.host}" } }
`,
  );
  for (const model of ["good", "broken", "broken"]) {
    const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] }),
    });
    await response.arrayBuffer();
  }
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/llm`, { width: 1440 });
  const providers = page.locator("section.panel", { hasText: "Models and providers" });
  await providers.getByText(/\(2 of 2 calls failed in the last hour, the last \d+ s ago\)$/).waitFor();
  assert.equal(await providers.locator(".status.bad").count(), 1);
  const usage = page.locator("section.panel", { hasText: "Usage" }).first();
  await usage.getByRole("link", { name: "broken" }).click();
  await page.waitForURL(/used=broken/);
  const charts = page.getByRole("region", { name: "Charts of broken" });
  await charts
    .getByRole("slider", { name: /^Requests in the last 15 min\. OK: up to 0; Rejected: up to 0; Failed: up to 2/ })
    .waitFor();
  for (const title of ["Latency", "Tokens", "Cost"])
    await charts.getByRole("slider", { name: new RegExp(`^${title} in the last 15 min`) }).waitFor();
  await checkLooks(page, "llm-failing");
  await page.getByRole("button", { name: "Close" }).click();
  await charts.waitFor({ state: "detached" });
  assert.deepEqual(errors, []);
  await page.close();
});
