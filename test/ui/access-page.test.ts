/**
 * The Access page shows who may use which routes, tools, and models, and the rule that decides.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type AccessReview, accessCsv, placeOf, selected } from "../../ui/src/pages/access/access-view.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { gatewayFor } from "../support/scenario.ts";
import { ARTIFACTS, openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { defects, sidewaysOverflow } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

test("clients, their tools and the deciding rule are shown, filtered and exported", { skip }, async (context) => {
  const server = await startToolsServer([
    { name: "read_file", inputSchema: { type: "object" } },
    { name: "delete_file", inputSchema: { type: "object" } },
  ]);
  context.after(() => server.close());
  const gateway = await gatewayFor(
    context,
    `
gateways: { default: { port: 0 } }
routes:
  - name: tools
    matches: [{ path: { exact: /mcp } }]
    backends: [{ mcp: { targets: [{ name: files, mcp: { url: "${server.url}" } }] } }]
    policies:
      apiKey:
        keys:
          - { key: ada-0123456789, metadata: { user_id: ada, team: ops } }
          - { key: ben-0123456789, metadata: { user_id: ben, team: research } }
      mcpAuthorization:
        rules: ['apiKey.team == "ops"', 'mcp.tool.name == "read_file"']
`,
  );
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/access`, { width: 1440 });
  const remove = page.getByRole("row", { name: /^tool:files\/delete_file/ });
  await remove.waitFor();
  assert.deepEqual(await page.locator(".access thead th").allTextContents(), [
    "Item",
    "Route",
    "ada",
    "ben",
    "anonymous",
  ]);
  assert.deepEqual(await remove.getByRole("button").allTextContents(), ["yes", "no", "no"]);
  await remove.getByRole("button", { name: "yes" }).click();
  await page.getByRole("heading", { name: "ada may use tool:files/delete_file" }).waitFor();
  await page.getByText('apiKey.team == "ops"').waitFor();
  for (const width of [1440, 400])
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(ARTIFACTS, `access-${colorScheme}-${width}.png`) });
      assert.deepEqual(await defects(page, colorScheme === "light" ? "all" : "contrast"), [], `${width}`);
      assert.ok((await sidewaysOverflow(page)) <= 0, `${width}`);
    }
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.getByRole("link", { name: "Show in the configuration" }).click();
  await page.waitForURL(/config\?file=.*line=13/);
  await page.goBack();
  await remove.waitFor();

  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download CSV" }).click(),
  ]);
  const lines = readFileSync(await file.path(), "utf8").split("\r\n");
  assert.equal(lines[0], "principal,kind,item,route,access,why");
  assert.ok(lines.some((line) => line.startsWith("ben,key,tool:files/delete_file,tools,no,")));

  await page.getByLabel("Filter clients").fill("team:research");
  await page.getByText("3 items, 1 client", { exact: true }).waitFor();
  await page.getByLabel("Filter items").fill("read");
  await page.getByText("1 item, 1 client", { exact: true }).waitFor();
  await page.getByLabel("Filter clients").fill("");
  await page.getByRole("button", { name: "Add a client" }).click();
  await page.getByLabel("Claims of a token, as JSON").fill("{ not json");
  await page.getByRole("button", { name: "Review", exact: true }).click();
  await page.getByText("Claims: enter JSON such as").waitFor();
  await page.getByLabel("Claims of a token, as JSON").fill('{"sub": "cleo"}');
  await page.getByRole("button", { name: "Review", exact: true }).click();
  await page.getByRole("columnheader", { name: "added client" }).waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});

test("a review is filtered by item, name and attribute, and its CSV is safe in a spreadsheet", () => {
  const reason = (allowed: boolean, text: string) => ({
    allowed,
    code: null,
    policy: null,
    rule: null,
    at: null,
    text,
  });
  const review: AccessReview = {
    principals: [
      { name: "=ada", kind: "key", attributes: { team: "ops" } },
      { name: "anonymous", kind: "anonymous", attributes: {} },
    ],
    items: [
      { kind: "tool", name: "files/read", listener: "l", route: "tools" },
      { kind: "model", name: "gpt", listener: "l", route: "llm" },
    ],
    reasons: [reason(true, "no policy restricts it"), reason(false, 'denied, by "rule"')],
    results: [
      [0, 1],
      [1, 1],
    ],
    notes: [],
  };
  const found = selected(review, { item: "tool:", principal: "TEAM:ops" });
  assert.deepEqual(
    found.rows.map(({ item, reasons }) => [item.name, reasons.map(({ allowed }) => allowed)]),
    [["files/read", [true]]],
  );
  assert.equal(selected(review, { item: "", principal: "" }).rows.length, 2);
  assert.deepEqual(accessCsv(review).split("\r\n").slice(1, 3), [
    "'=ada,key,tool:files/read,tools,yes,no policy restricts it",
    'anonymous,anonymous,tool:files/read,tools,no,"denied, by ""rule"""',
  ]);
  assert.deepEqual(placeOf("a/config.yaml:12:5"), { file: "a/config.yaml", line: "12" });
  assert.equal(placeOf(null), undefined);
});
