/**
 * What a newcomer does from the UI alone: calls a tool of the demo server, chats until the token limit refuses, sees
 * why in the trace, finds the rule.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { ARTIFACTS, openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { startDemo } from "./demo-gateway.ts";

let gateway: TestGateway;
let browser: TestBrowser;

before(async () => {
  if (skip !== false) return;
  gateway = await startDemo();
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
  await gateway?.close();
});

test("a tool is called through the gateway: form, progress, result, trace", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/`);
  await page.getByRole("link", { name: "Call a tool" }).click();
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await page.getByRole("button", { name: /^add/ }).click();
  await page.getByLabel(/^a /).fill("19");
  await page.getByLabel(/^b /).fill("23");
  await page.getByRole("button", { name: "Call" }).click();
  await page.getByText("42", { exact: true }).waitFor();

  await page.getByRole("button", { name: /^slow/ }).click();
  await page.getByLabel(/^seconds/).fill("1");
  await page.getByRole("button", { name: "Call" }).click();
  await page.getByRole("progressbar").waitFor();
  await page.getByText("worked for 1 s").waitFor();
  await page.getByText("running (1 session)").waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "ui-mcp.png") });
  await page.getByRole("status").getByRole("link", { name: "trace", exact: true }).click();
  await page.getByText("tools/call slow").first().waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "newcomer-tool-trace.png") });
  assert.deepEqual(errors, []);
  await page.close();
});

test("the chat streams until the limit refuses; the trace says why and leads to the rule", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/llm`);
  const message = page.getByLabel("Message");
  const refusal = page.getByRole("link", { name: "See why" });
  for (let i = 0; i < 12 && (await refusal.count()) === 0; i++) {
    await message.fill(`Tell me more about token buckets, number ${i}.`);
    await message.press("Enter");
    await page.locator(".exchange").nth(i).locator(".took, .note").first().waitFor();
  }
  await page.getByText("rate limit exceeded").first().waitFor();
  await page
    .getByText(/left, resets in/)
    .first()
    .waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "ui-llm.png") });
  await refusal.first().click();
  await page
    .getByText(/Limited by/)
    .first()
    .waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "ui-trace.png") });
  await page.goBack();
  await page.getByRole("link", { name: "See the rule" }).first().click();
  await page.getByText("150 tokens per hour").waitFor();
  await page.getByText(/available in \d+ (?:s|min)/).waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "ui-limits.png") });
  await page.getByRole("link", { name: "Rule", exact: true }).click();
  await page.getByRole("heading", { name: "chat", exact: true }).waitFor();
  await page.locator(".policies > li", { hasText: "rateLimit" }).waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});

test("two models are compared side by side, and what they say is text whatever it contains", { skip }, async () => {
  const own = await startDemo("", {});
  const { page, errors } = await openPage(browser, `${own.adminUrl}/ui/llm`);
  await page.getByRole("tab", { name: "Compare models" }).click();
  await page.getByRole("combobox", { name: "Add a model" }).fill("other");
  await page.keyboard.press("Enter");
  await page
    .getByLabel("Question to all models")
    .fill("**hi** <img src=x onerror=document.title=1> [a](javascript:alert(1)) ![i](http://127.0.0.1:9/x.png)");
  await page.getByRole("button", { name: "Ask all" }).click();
  await page.locator(".compare section").nth(1).locator(".took").waitFor();
  await page
    .locator(".compare section")
    .nth(0)
    .getByText(/ in, .* out/)
    .waitFor();
  assert.equal(await page.locator(".compare img, .compare a[href^=javascript]").count(), 0);
  assert.notEqual(await page.title(), "1");
  assert.deepEqual(errors, []);
  await page.close();
  await own.close();
});
