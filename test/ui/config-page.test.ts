/**
 * The configuration page: secrets are not in it, a mistake is marked at its line, an edit says what it would change,
 * and saving keeps comments, order and secrets.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { ARTIFACTS, openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { SECRET, startDemo } from "./demo-gateway.ts";

let gateway: TestGateway;
let browser: TestBrowser;

before(async () => {
  if (skip !== false) return;
  gateway = await startDemo("  allowConfigEdit: true\n");
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
  await gateway?.close();
});

test("a mistake is marked at its line with a suggestion, and a secret is not in the page", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/config`);
  const editor = page.getByLabel("Configuration");
  await editor.waitFor();
  const text = await editor.inputValue();
  assert.ok(text.includes("<redacted:0>") && !text.includes(SECRET));
  await editor.fill(text.replace("  - name: hello", "  - nam: hello"));
  await page
    .getByText(/unknown field/)
    .first()
    .waitFor();
  const line = text.split("\n").indexOf("  - name: hello") + 1;
  await page
    .getByRole("link", { name: new RegExp(`line ${line}`) })
    .first()
    .waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "ui-config.png") });
  await page.screenshot({ path: join(ARTIFACTS, "config-problem.png") });
  assert.equal(await page.getByRole("button", { name: "Save" }).isDisabled(), true);
  assert.deepEqual(errors, []);
  await page.close();
});

test("pointing at a line shows the field's documentation", { skip }, async () => {
  const { page } = await openPage(browser, `${gateway.adminUrl}/ui/config`);
  const editor = page.getByLabel("Configuration");
  await editor.waitFor();
  const lines = (await editor.inputValue()).split("\n");
  const index = lines.findIndex((line) => line.includes("tracing:"));
  await editor.hover({ position: { x: 60, y: 8 + index * 18 + 9 } });
  await page.getByText("config.tracing", { exact: true }).waitFor();
  await page.close();
});

test("an edit says what it would change; saved, it keeps comments and secrets and is loaded", { skip }, async () => {
  const { page } = await openPage(browser, `${gateway.adminUrl}/ui/config`);
  const editor = page.getByLabel("Configuration");
  await editor.waitFor();
  const text = await editor.inputValue();
  await editor.fill(text.replace("tokens: 150", "tokens: 250"));
  await page.getByText(/policies\.rateLimit/).waitFor();
  await page.getByText("valid", { exact: true }).waitFor();
  const loaded = gateway.logged("configuration loaded");
  await page.getByRole("button", { name: "Save" }).click();
  await loaded;
  const file = readFileSync(join(gateway.folder, "config.yaml"), "utf8");
  assert.match(file, /^# Kept: a comment at the top\.$/m);
  assert.match(file, /- name: tools # Kept: beside a value\.$/m);
  assert.match(file, /tokens: 250/);
  assert.ok(file.includes(SECRET) && !file.includes("<redacted"));
  await page.close();
});
