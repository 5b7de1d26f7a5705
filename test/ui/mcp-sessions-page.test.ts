/**
 * The MCP page lists sessions with client, user, activity, calls and errors, and leads to their requests; charts show
 * calls, errors and latency of one tool.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { rawClient } from "../support/mcp/client.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

test("sessions show their client and lead to its requests; a tool has charts", { skip }, async (context) => {
  const server = await startToolsServer([
    { name: "read", inputSchema: { type: "object" } },
    { name: "break", inputSchema: { type: "object" } },
  ]);
  server.results.break = { content: [{ type: "text", text: "no disk" }], isError: true };
  context.after(() => server.close());
  const gateway = await gatewayFor(
    context,
    `
mcp:
  port: 0
  policies: { apiKey: { mode: optional, keys: [{ key: key-of-ada, metadata: { user_id: ada } }] } }
  targets: [{ name: files, mcp: { url: "${server.url}" } }]
`,
  );
  const client = rawClient(`${gateway.url()}/mcp`);
  const { post } = client;
  client.post = (body, headers = {}) => post(body, { authorization: "Bearer key-of-ada", ...headers });
  await client.initialize({ clientInfo: { name: "claude-code", version: "2.1.0" } });
  await client.call("read");
  await client.call("read");
  await client.call("break");

  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/mcp`, { width: 1440 });
  const row = page.locator("table.sessions tbody tr", { hasText: "claude-code" });
  await row.waitFor();
  const cells = (await row.locator("td").allTextContents()).map((text) => text.trim());
  assert.deepEqual(cells.slice(0, 2), ["claude-code 2.1.0", "ada"]);
  assert.match(cells[2] ?? "", /^now$|ago$/);
  assert.deepEqual(cells.slice(3, 7), ["3", "1", "files", "2025-11-25"]);
  assert.equal(await row.getByText("playground").count(), 0);

  await page.getByRole("button", { name: "Connect", exact: true }).click();
  const own = page.locator("table.sessions tbody tr", { hasText: "playground" });
  await own.waitFor();
  await page.getByRole("button", { name: "Disconnect" }).click();

  const calls = page.locator("section.panel", { hasText: "Tool calls" });
  await calls.getByRole("row", { name: /^break files 1 1/ }).waitFor();
  const firstTool = calls.locator("tbody tr").first();
  await firstTool.getByText("read").waitFor();
  for (const [order, first] of [
    ["descending", "break"],
    ["ascending", "read"],
  ] as const) {
    await calls.getByRole("button", { name: "Errors" }).click();
    await calls.locator(`th[aria-sort=${order}]`, { hasText: "Errors" }).waitFor();
    await firstTool.getByText(first).waitFor();
  }
  await calls.getByRole("link", { name: "read", exact: true }).click();
  await page.waitForURL(/calls=files%2Fread/);
  await page.getByRole("slider", { name: "Requests in the last 15 min. OK: up to 2" }).waitFor();
  await page.getByRole("slider", { name: /^Errors in the last 15 min/ }).waitFor();
  await page.getByRole("slider", { name: /^Latency in the last 15 min. p50: up to/ }).waitFor();
  await checkLooks(page, "mcp-sessions");
  await page.setViewportSize({ width: 1440, height: 900 });
  await calls.getByRole("link", { name: "View requests" }).click();
  await page.getByRole("button", { name: "Remove filter tool" }).waitFor();
  await page.locator("table.requests tbody tr").nth(1).waitFor();
  assert.equal(await page.locator("table.requests tbody tr").count(), 2);

  await page.goto(`${gateway.adminUrl}/ui/mcp`);
  await row.getByRole("link").click();
  await page.getByRole("button", { name: "Remove filter session" }).waitFor();
  await page.getByRole("link", { name: "tools/call break" }).waitFor();
  const requests = await page.locator("table.requests tbody tr td:nth-child(2)").allTextContents();
  assert.deepEqual(requests, ["tools/call break", "tools/call read", "tools/call read", "notifications/initialized"]);
  assert.deepEqual(errors, []);
  await page.close();
});
