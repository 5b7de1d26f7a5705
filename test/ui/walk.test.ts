/**
 * Every page as a user would open it: in both themes, at 1440 and 400 pixels, with data, without a script error, a
 * violated security policy, a sideways scroll bar or a serious accessibility defect. Screenshots are kept.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { ARTIFACTS, openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { sendTraffic, startDemo } from "./demo-gateway.ts";
import { defects, PAGES, sidewaysOverflow } from "./page-checks.ts";

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

for (const width of [1440, 400])
  test(`every page is whole in both themes at ${width} pixels`, { skip }, async (context) => {
    const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/`, { width });
    for (const { name, text } of PAGES)
      await context.test(name, async () => {
        await page.goto(`${gateway.adminUrl}/ui/${name}`);
        await page.getByText(text).first().waitFor();
        await page.getByText("serving").first().waitFor();
        for (const [theme, kind] of [["light", "all"] as const, ["dark", "contrast"] as const]) {
          await page.emulateMedia({ colorScheme: theme });
          await page.screenshot({ path: join(ARTIFACTS, `${name}-${theme}-${width}.png`) });
          assert.deepEqual(await defects(page, kind), [], theme);
          assert.ok((await sidewaysOverflow(page)) <= 0, `the page scrolls sideways in the ${theme} theme`);
        }
        assert.deepEqual(errors, []);
      });
    await page.close();
  });

test("the picture shows rates while requests pass", { skip }, async () => {
  const { page } = await openPage(browser, `${gateway.adminUrl}/ui/`);
  const rate = page.locator(".node.route .numbers").filter({ hasText: /[1-9]\d*(?:\.\d)?\/s/ });
  await eventually("three routes show rates", async () => {
    await sendTraffic(gateway);
    return (await rate.count()) >= 3;
  });
  await page.screenshot({ path: join(ARTIFACTS, "ui-overview.png") });
  await page.close();
});

test("keys open pages, and the palette finds a route by its name", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/`);
  await page.getByText("serving").waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("l");
  await page.getByRole("heading", { name: "LLM", level: 1 }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to/ }).fill("route closed");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "route closed" }).waitFor();
  assert.match(page.url(), /node=route%3Aclosed/);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to/ }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.deepEqual(errors, []);
  await page.close();
});

test("a key that is pressed before the page is there is acted on when it is", { skip }, async () => {
  const { page, errors } = await openPage(browser, "about:blank");
  // First the application is missing, then the part that has the field.
  let arrive = (): void => undefined;
  const arrived = new Promise<void>((resolve) => (arrive = resolve));
  let isHeld = 0;
  await page.route(/\.js$/, async (route) => {
    if (!/\/boot-/.test(route.request().url())) {
      isHeld++;
      await arrived;
    }
    await route.continue();
  });
  await page.goto(`${gateway.adminUrl}/ui/requests`, { waitUntil: "commit" });
  await eventually("the boot script ran", () => page.evaluate("window.takeEarlyKeys !== undefined"));
  await page.keyboard.press("/");
  await page.keyboard.type("jk g");
  assert.ok(isHeld > 0 && (await page.locator("main").count()) === 0, "the page is not there yet");
  arrive();
  await page.locator("main input[data-search]:focus").waitFor();
  await page.waitForURL(/text=jk(?:\+|%20)g$/);
  await page.keyboard.type("o");
  assert.equal(await page.locator("main input[data-search]").inputValue(), "jk go");
  assert.deepEqual(errors, []);
  await page.close();
});

test("the copy on a gateway shows the same and offers nothing that acts [S2.1-14]", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.url("default")}/ui/`);
  const missing: string[] = [];
  page.on("response", (response) => {
    if (response.status() === 404) missing.push(response.url());
  });
  await page.getByText("read-only").waitFor();
  await page.getByRole("heading", { name: "Problems" }).waitFor();
  for (const { name, text } of PAGES.filter((one) => one.name !== "cel" && one.name !== "config")) {
    await page.goto(`${gateway.url("default")}/ui/${name}`);
    await page.getByText("read-only").waitFor();
    await page.getByText(text).first().waitFor();
    for (const action of ["Connect", "Send", "Set", "CPU", "Trace next request"])
      assert.equal(await page.getByRole("button", { name: action, exact: true }).count(), 0, `${action} on ${name}`);
  }
  await page.goto(`${gateway.url("default")}/ui/config`);
  await page.getByRole("heading", { name: "Loaded configuration" }).waitFor();
  assert.deepEqual(missing, [], "what this copy does not offer is not asked for");
  assert.deepEqual(errors, []);
  await page.close();
});

test("the theme switch holds over a reload", { skip }, async () => {
  const { page } = await openPage(browser, `${gateway.adminUrl}/ui/`, { theme: "light" });
  const background = (): Promise<unknown> =>
    page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor");
  const light = await background();
  await page.getByRole("button", { name: /Theme/ }).click();
  await page.getByRole("button", { name: /Theme/ }).click();
  const dark = await background();
  assert.notEqual(dark, light);
  await page.reload();
  await page.getByText("serving").waitFor();
  assert.equal(await background(), dark);
  await page.close();
});
