/**
 * The frame and the Runtime page: the help menu with the version, menus that close, and tasks as a table with V8 details
 * collapsed.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

test("help shows the version and closes; tasks are a table", { skip }, async (context) => {
  const gateway = await gatewayFor(
    context,
    `
gateways: { default: { port: 0 } }
routes: [{ name: hello, policies: { directResponse: { status: 200, body: hello } } }]
`,
  );
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/runtime`, { width: 1440 });
  const help = page.getByRole("button", { name: "Help" });
  const panel = page.getByRole("dialog", { name: "Help" });
  await help.click();
  await panel.getByText(/^gateway \S+ on /).waitFor();
  await panel.getByText("next and previous entry").waitFor();
  await checkLooks(page, "help");
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "detached" });
  await help.click();
  await page.getByRole("heading", { name: "Runtime" }).click();
  await panel.waitFor({ state: "detached" });

  await page.getByRole("row", { name: /^default listener .* port \d+/ }).waitFor();
  assert.equal(await page.getByText("old space").count(), 0);
  await page.getByText("Advanced: V8 heap spaces").click();
  await page.getByText("old space").waitFor();
  await checkLooks(page, "runtime-tasks");
  assert.deepEqual(errors, []);
  await page.close();
});

test("headers of tables are in sentence case", () => {
  const sources = readdirSync("ui/src/pages", { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".tsx"))
    .map((path) => readFileSync(join("ui/src/pages", path), "utf8"));
  const headers = sources.flatMap((text) => [...text.matchAll(/<th scope="col"[^>]*>\s*(\w[^<{]*)/g)]);
  assert.ok(headers.length > 30);
  assert.deepEqual(
    headers.map(([, title]) => title?.trim() ?? "").filter((title) => /^[a-z]/.test(title)),
    [],
  );
});
