/**
 * Requests and traces: live rows, filters that stand in the address, refusals in words, a trace of the next request,
 * and names from traffic that stay text.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { ARTIFACTS, openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { ask, EVIL_SHOWN, SECRET, sendTraffic, startDemo } from "./demo-gateway.ts";
import { checkLooks } from "./page-checks.ts";

let gateway: TestGateway;
let browser: TestBrowser;

before(async () => {
  if (skip !== false) return;
  gateway = await startDemo();
  browser = await openBrowser();
  await sendTraffic(gateway);
});
after(async () => {
  await browser?.close();
  await gateway?.close();
});

test("filters by text, status and CEL stand in the address", { skip }, async () => {
  const { page } = await openPage(browser, `${gateway.adminUrl}/ui/requests?text=world`);
  const rows = page.locator("table.requests tbody tr");
  await page.getByText("1 of 6 requests").waitFor();
  await page.getByLabel("Search", { exact: true }).fill("");
  await page.getByRole("button", { name: "4xx" }).click();
  await page.getByText("3 of 6 requests").waitFor();
  assert.match(page.url(), /status=4xx/);
  await page.getByRole("button", { name: "4xx" }).click();
  await page.getByLabel("CEL filter").fill('request.path == "/closed"');
  await page.getByText("1 of 6 requests").waitFor();
  assert.equal(await rows.count(), 1);
  assert.match(page.url(), /cel=request\.path/);
  await page.close();
});

test("a CEL filter applies while it is typed, and shows what it cannot evaluate", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/requests`);
  const filter = page.getByLabel("CEL filter");
  const note = page.locator(".note");
  await filter.fill("request.path ==");
  await note.getByText("The CEL filter is not applied: ").waitFor();
  await page.getByText("6 requests", { exact: true }).waitFor();
  await filter.fill('request.method == "GET" && response.code == 403');
  await page.getByText("1 of 6 requests").waitFor();
  assert.equal(await note.count(), 0);
  await filter.fill('llm.requestModel == "demo"');
  await note.getByText("5 requests are hidden because the expression fails").waitFor();
  await page.getByText("1 of 6 requests").waitFor();
  await checkLooks(page, "requests-cel");
  await filter.fill("request.body == ''");
  await note.getByText("bodies are not kept after a request has ended").waitFor();
  await page.getByText("0 of 6 requests").waitFor();
  await page.getByRole("link", { name: "Evaluate one part by part" }).click();
  await page.getByRole("heading", { name: "Result" }).waitFor();
  await page.locator(".note.bad").getByText("bodies are not kept").waitFor();
  await page.getByLabel("Expression").fill("response.code == 999");
  await page.locator(".note", { hasText: /^false$/ }).waitFor();
  assert.equal(await page.locator(".note.ok").count(), 0, "false is not shown as a success");
  await page.getByLabel("Expression").fill("response.code > 0");
  await page.locator(".note.ok", { hasText: /^true$/ }).waitFor();
  await checkLooks(page, "cel-result");
  await page.goto(`${gateway.adminUrl}/ui/requests?cel=${encodeURIComponent('proxy.route.name == "hello"')}`);
  await page.getByText("2 of 6 requests").waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});

test("a refusal is one sentence, with the rule and the value it saw", { skip }, async () => {
  const { page } = await openPage(browser, `${gateway.adminUrl}/ui/requests?route=closed`);
  await page.getByRole("link", { name: "GET /closed" }).click();
  const sentence = page.locator(".sentence");
  await sentence.waitFor();
  assert.match((await sentence.textContent()) ?? "", /Denied by authorization of route closed.*x-role/s);
  assert.match(page.url(), /id=/);
  await page.screenshot({ path: join(ARTIFACTS, "refusal.png") });
  await page.close();
});

test("a request is sent again with changes, and its answer is shown as text", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/requests?route=closed`);
  await page.getByRole("link", { name: "GET /closed" }).first().click();
  await page.getByText("Edit and resend").click();
  await page.getByLabel(/^Headers/).fill("x-role: admin");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator("pre.code", { hasText: /^open$/ }).waitFor();
  await page.getByLabel("Path and query").fill("/evil/<script>alert(1)</script>");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("teapot").waitFor();
  await page.getByLabel("Path and query").fill("http://example.com/");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("expected a path that begins with /").waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});

test("the next request that matches is traced, with snapshots and their difference", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/requests`);
  let arm = (): void => undefined;
  const isArmed = new Promise<void>((resolve) => (arm = resolve));
  await page.route(/\/debug\/trace/, async (route) => {
    await isArmed;
    await route.continue();
  });
  await page.getByLabel(/Trace the next request/).fill('request.path.endsWith("/completions")');
  await page.getByRole("button", { name: "Trace next request" }).click();
  await page.getByText("starting", { exact: true }).waitFor();
  assert.equal(await page.getByText("waiting for a request").count(), 0, "the gateway does not trace yet");
  arm();
  await page.getByText("waiting for a request").waitFor();
  await fetch(`${gateway.url("default")}/hello`);
  await ask(gateway, "Hello again!", { authorization: `Bearer ${SECRET}` });
  await page.getByText("complete").waitFor();
  await page.getByRole("button", { name: "Snapshot: route policies" }).click();
  await page.getByRole("tab", { name: "Difference" }).click();
  await page.getByText("request.headers.x-added").waitFor();
  await page.screenshot({ path: join(ARTIFACTS, "trace-difference.png") });
  assert.ok(!(await page.content()).includes(SECRET), "a secret is in the page");
  assert.deepEqual(errors, []);
  await page.close();
});

test("while paused nothing moves, and afterwards nothing is lost", { skip }, async () => {
  const { page } = await openPage(browser, `${gateway.adminUrl}/ui/requests?text=pause-test`);
  await page.getByText("requests").first().waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  const rows = page.locator("table.requests tbody tr");
  for (let i = 0; i < 3; i++) await fetch(`${gateway.url("default")}/hello/pause-test-${i}`);
  assert.equal(await rows.count(), 0);
  await page.getByRole("button", { name: "Resume" }).click();
  await rows.nth(2).waitFor();
  await page.close();
});

test("names made of markup and control characters are text on every page [U1]", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/`);
  let dialogs = 0;
  page.on("dialog", () => {
    dialogs += 1;
  });
  for (const name of ["overview", "requests", "policies", "config"]) {
    await page.goto(`${gateway.adminUrl}/ui/${name}`);
    const shown = name === "config" ? "<img src=x" : EVIL_SHOWN;
    await page.getByText(shown).locator("visible=true").first().waitFor();
    assert.equal(await page.locator("main img").count(), 0);
  }
  await page.goto(`${gateway.adminUrl}/ui/overview?node=${encodeURIComponent("route:<img src=x onerror=alert(1)>")}`);
  await page.getByRole("heading", { name: /^route </ }).waitFor();
  assert.equal(dialogs, 0);
  assert.notEqual(await page.title(), "1");
  assert.deepEqual(errors, []);
  await page.close();
});
