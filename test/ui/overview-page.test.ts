/**
 * The Overview shows the traffic of the selected range from the gateway's history: also requests before the page was
 * opened, failing routes first, and charts with an axis and values at the pointer.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { ARTIFACTS, openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { defects, sidewaysOverflow } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

test("a page that is opened after the traffic shows its rates, failures and charts", { skip }, async (context) => {
  const backend = await backendFor(context, (request, response) => {
    response.statusCode = request.url?.startsWith("/bad") ? 500 : 200;
    response.end("done");
  });
  const names = Array.from({ length: 14 }, (_unused, i) => `route-${i}`);
  const gateway = await gatewayFor(
    context,
    `
gateways: { default: { port: 0 } }
routes:
${names.map((name) => `  - { name: ${name}, matches: [{ path: { pathPrefix: /${name} } }], backends: [{ host: "${backend.host}" }] }`).join("\n")}
  - { name: breaking, matches: [{ path: { pathPrefix: /bad } }], backends: [{ host: "${backend.host}" }] }
`,
  );
  const send = async (path: string, times: number): Promise<void> => {
    for (let i = 0; i < times; i++) await (await fetch(gateway.url() + path)).text();
  };
  await send("/route-13", 30);
  await send("/route-7", 10);
  await send("/bad", 2);
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/`, { width: 1440 });
  await page.getByText("2 requests to breaking failed with status 500").waitFor();
  assert.equal(await page.getByText("No problems.").count(), 0);
  await page.getByText("12 of 15 routes: failing first, then busiest").waitFor();
  await eventually("failing routes come first, then the busiest", async () => {
    const shown = await page.locator(".node.route .title .mono").allTextContents();
    return JSON.stringify(shown.slice(0, 3)) === JSON.stringify(["breaking", "route-13", "route-7"]);
  });
  const first = page.locator(".node.route").first();
  assert.match((await first.textContent()) ?? "", /100% errors/);
  assert.match((await page.locator(".node.route").nth(1).textContent()) ?? "", /[1-9]\d*(?:\.\d)?\/(?:s|min)/);

  const plot = page.getByRole("slider", { name: /^Requests in the last 15 min/ });
  await plot.hover();
  await page.locator(".chart .values").getByText("Failed").waitFor();
  assert.ok((await page.locator(".chart .axis").count()) > 5);
  // From the keyboard: the newest slots have the traffic.
  await page.mouse.move(0, 0);
  await plot.focus();
  await eventually("a slot with the failures is reached", async () => {
    await page.keyboard.press("ArrowLeft");
    return /Failed\s*2/.test((await page.locator(".chart .values").textContent()) ?? "");
  });

  for (const [title, series] of [
    ["Latency", "p99"],
    ["Errors", "Rejected"],
    ["MCP calls", ""],
  ] as const) {
    await page.locator("a.tile", { hasText: title }).click();
    await page.getByRole("slider", { name: new RegExp(`^${title} in the last 15 min`) }).waitFor();
    if (series !== "") await page.locator(".chart .legend").getByText(series).waitFor();
  }
  await page.getByRole("button", { name: "1 h", exact: true }).click();
  await page.waitForURL(/range=1h/);
  await page.getByRole("slider", { name: /in the last 1 h/ }).waitFor();
  assert.equal(await page.getByRole("button", { name: "30 d" }).count(), 0, "no history database");

  await first.click();
  await page.getByRole("heading", { name: "route breaking" }).waitFor();
  await page.locator(".panel .charts .chart").first().waitFor();
  for (const width of [1440, 400])
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(ARTIFACTS, `overview-route-${colorScheme}-${width}.png`) });
      assert.deepEqual(await defects(page, colorScheme === "light" ? "all" : "contrast"), [], `${width}`);
      assert.ok((await sidewaysOverflow(page)) <= 0, `${width}`);
    }
  assert.deepEqual(errors, []);
  await page.close();
});

test("with a history database, charts reach back 30 days", { skip }, async (context) => {
  const gateway = await gatewayFor(
    context,
    `
config: { history: {} }
gateways: { default: { port: 0 } }
routes: [{ name: hello, policies: { directResponse: { status: 200, body: hello } } }]
`,
  );
  for (let i = 0; i < 3; i++) await (await fetch(gateway.url())).text();
  await eventually("the requests are stored", async () => {
    const response = await fetch(`${gateway.adminUrl}/debug/usage`);
    return ((await response.json()) as { total: { requests: number } }).total.requests === 3;
  });
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/`);
  for (const title of ["24 h", "7 d", "30 d"]) {
    await page.getByRole("button", { name: title, exact: true }).click();
    await page.getByText(`3 in ${title}`).waitFor();
    await page.getByRole("slider", { name: new RegExp(`Requests in the last ${title}. OK: up to 3`) }).waitFor();
  }
  await page.locator("a.tile", { hasText: "Latency" }).click();
  await page.getByRole("slider", { name: /Latency in the last 30 d. Mean: up to/ }).waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});
