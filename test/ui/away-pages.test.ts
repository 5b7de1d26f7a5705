/**
 * Every page while the gateway is killed and comes back with another configuration: each says that it went away, and is
 * right again without being loaded anew. `npm run test:ui-scale` also judges how long that takes.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";

const isMeasured = process.env.UI_SCALE === "full";
const MAX_NOTICED_MS = 2_000;
const MAX_RIGHT_MS = 3_000;

/** A page and what it shows of a life of the gateway. */
const PAGES: readonly { name: string; shows(life: string): string }[] = [
  { name: "overview", shows: (life) => `route-${life}` },
  { name: "requests", shows: (life) => `/asked-${life}` },
  { name: "mcp", shows: (life) => `server-${life}` },
  { name: "llm", shows: (life) => `model-${life}` },
  { name: "limits", shows: (life) => (life === "one" ? "71 requests per hour" : "72 requests per hour") },
  { name: "policies", shows: (life) => `route-${life}` },
  { name: "config", shows: (life) => `life ${life}` },
  { name: "runtime", shows: (life) => `listener-${life}` },
  { name: "cel", shows: (life) => `/asked-${life}` },
];

let browser: TestBrowser;
let gateway: TestGateway;

async function start(life: "one" | "two", adminPort: string): Promise<void> {
  gateway = await startGateway(`# life ${life}
config: { adminAddr: "127.0.0.1:${adminPort}" }
gateways: { listener-${life}: { port: 0, address: 127.0.0.1 } }
routes:
  - name: route-${life}
    matches: [{ path: { pathPrefix: /asked-${life} } }]
    policies:
      directResponse: { status: 200, body: ok }
      rateLimit: { local: [{ requests: ${life === "one" ? 71 : 72}, unit: Hours }] }
  - name: tools
    matches: [{ path: { pathPrefix: /mcp } }]
    backends:
      - mcp: { targets: [{ name: server-${life}, mcp: { url: "http://127.0.0.1:9/mcp" } }] }
  - name: chat
    matches: [{ path: { pathPrefix: /v1 } }]
    backends:
      - ai: { name: model-${life}, provider: { demo: {} } }
`);
  await (await fetch(`${gateway.url()}/asked-${life}`)).arrayBuffer();
}

before(async () => {
  if (skip !== false) return;
  await start("one", "0");
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
  await gateway?.close();
});

test("each page says that the gateway went away, and is right again when it is back", { skip }, async (context) => {
  const open: { name: string; page: Page; errors: string[] }[] = [];
  for (const { name, shows } of PAGES) {
    const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/${name}`);
    await shown(page, shows("one"));
    await page.evaluate("window.isSame = true");
    open.push({ name, page, errors });
  }
  const { port } = new URL(gateway.adminUrl);
  const killedMs = performance.now();
  await gateway.close();
  const noticed = await Promise.all(
    open.map(({ page }) =>
      page
        .getByRole("alert")
        .waitFor()
        .then(() => performance.now() - killedMs),
    ),
  );
  await start("two", port);
  const backMs = performance.now();
  const right = await Promise.all(
    open.map(async ({ page }, i) => {
      await shown(page, PAGES[i]?.shows("two") ?? "");
      await page.getByRole("alert").waitFor({ state: "detached" });
      return performance.now() - backMs;
    }),
  );
  for (const [i, { name, page, errors }] of open.entries())
    await context.test(name, async () => {
      assert.equal(await page.evaluate("window.isSame"), true, "the page was loaded anew");
      assert.equal(await page.getByText(PAGES[i]?.shows("one") ?? "").count(), 0, "something old is still shown");
      assert.deepEqual(errors, []);
      if (!isMeasured) return;
      const [noticedMs = 0, rightMs = 0] = [noticed[i], right[i]];
      console.log(`${name}: noticed after ${Math.round(noticedMs)} ms, right after ${Math.round(rightMs)} ms`);
      assert.ok(noticedMs < MAX_NOTICED_MS && rightMs < MAX_RIGHT_MS, `${noticedMs} ms, ${rightMs} ms`);
    });
});

/** Also in the value of a field: the editor of the configuration is one. */
async function shown(page: Page, text: string): Promise<void> {
  await page.locator("main").getByText(text).first().waitFor({ state: "attached" });
}
