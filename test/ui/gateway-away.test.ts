/**
 * A gateway that goes away while a page is open is shown, and the page is right again when it is back, without being
 * loaded anew; what somebody typed outlives a look at another page.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";

let browser: TestBrowser;
let gateway: TestGateway;

const start = (adminPort: string): Promise<TestGateway> =>
  startGateway(`
config: { adminAddr: "127.0.0.1:${adminPort}" }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: only
    policies:
      directResponse: { status: 200, body: ok }
      rateLimit: { local: [{ requests: 1, unit: Hours }] }
`);

before(async () => {
  if (skip !== false) return;
  gateway = await start("0");
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
  await gateway?.close();
});

async function restart(whileAway: () => Promise<void>): Promise<void> {
  const { port } = new URL(gateway.adminUrl);
  await gateway.close();
  await whileAway();
  gateway = await start(port);
}

test("pages say that the gateway went away, and are right again when it is back", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/requests`);
  await fetch(`${gateway.url()}/before`);
  await page.getByText("/before").first().waitFor();
  // The page, as long as it is not loaded anew.
  await page.evaluate("window.isSame = true");
  const banner = page.getByRole("alert");
  await restart(async () => {
    await banner.waitFor();
    // A page that was never opened: its files cannot be had now.
    await page.getByRole("link", { name: "Limits" }).click();
  });
  await banner.waitFor({ state: "detached" });
  for (let i = 0; i < 2; i++) await fetch(`${gateway.url()}/after`);
  await page.getByText("exhausted").waitFor();
  await page.getByRole("link", { name: "Requests" }).click();
  await page.getByText("/after").first().waitFor();
  assert.equal(await page.getByText("/before").count(), 0);
  assert.equal(await page.evaluate("window.isSame"), true);
  assert.deepEqual(errors, []);
  await page.close();
});

test("a page whose script could not be loaded is loaded again", { skip }, async () => {
  const { page } = await openPage(browser, "about:blank");
  let failures = 0;
  await page.route(
    ({ pathname }) => pathname.endsWith(".js") && !pathname.includes("boot"),
    (route) => {
      failures += 1;
      return failures <= 2 ? route.abort() : route.continue();
    },
  );
  await page.goto(`${gateway.adminUrl}/ui/overview`);
  await page.locator("main").getByText("only").first().waitFor();
  assert.ok(failures > 2);
  await page.waitForFunction("sessionStorage.getItem('reloads') === null");
  await page.close();
});

test("edits of the configuration that were not saved are still there after another page", { skip }, async () => {
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/config`);
  const editor = page.getByLabel("Configuration");
  await editor.waitFor();
  const edited = `${await editor.inputValue()}# my note\n`;
  await editor.fill(edited);
  await page.getByRole("link", { name: "CEL", exact: false }).first().click();
  await page.getByText("Attributes").first().waitFor();
  await page.getByRole("link", { name: "Config" }).click();
  await editor.waitFor();
  assert.equal(await editor.inputValue(), edited);
  await page.getByRole("button", { name: "Reset" }).click();
  assert.doesNotMatch(await editor.inputValue(), /my note/);
  assert.deepEqual(errors, []);
  await page.close();
});
