/**
 * Policies with many routes: filters by name, kind and "has policies", the configuration as highlighted YAML, and a
 * link to the line of each policy.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

test("routes are filtered by their policies, which lead to their lines", { skip }, async (context) => {
  const plain = Array.from(
    { length: 20 },
    (_unused, i) => `plain-${i}${i === 3 ? "-with-a-very-long-name".repeat(5) : ""}`,
  );
  const gateway = await gatewayFor(
    context,
    `
gateways:
  default:
    port: 0
    policies:
      cors: { allowOrigins: ["https://example.com"] }
routes:
${plain.map((name) => `  - { name: ${name}, matches: [{ path: { pathPrefix: /${name} } }], backends: [{ host: "127.0.0.1:1" }] }`).join("\n")}
  - name: limited
    matches: [{ path: { pathPrefix: /limited } }]
    policies:
      rateLimit:
        local: [{ requests: 10, unit: Minutes, key: apiKey.user_id }]
      apiKey: { stored: true }
    backends: [{ host: "127.0.0.1:1" }]
  - name: changed
    matches: [{ path: { pathPrefix: /changed } }]
    backends:
      - host: "127.0.0.1:1"
        policies:
          requestHeaderModifier: { set: { x-a: b } }
`,
  );
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/policies`, { width: 1440 });
  const routes = page.locator(".pick a");
  await page.getByRole("heading", { name: "22 routes" }).waitFor();
  await page.getByRole("heading", { name: "limited", exact: true }).waitFor();
  const edges = await page
    .locator(".split.side > .panel")
    .first()
    .evaluate((panel) => [
      panel.getBoundingClientRect().right,
      ...[...panel.querySelectorAll(".route-filters > *, .hint")].map((one) => one.getBoundingClientRect().right),
    ]);
  assert.equal(Math.max(...edges), edges[0], "a long name pushes nothing out of the list");

  await page.getByRole("button", { name: "has policies" }).click();
  await page.getByRole("heading", { name: "2 of 22 routes" }).waitFor();
  assert.deepEqual(
    (await routes.allTextContents()).map((text) => text.trim()),
    ["limited2", "changed1"],
  );
  await page.getByLabel("Policy", { exact: true }).selectOption("requestHeaderModifier");
  await page.getByRole("heading", { name: "1 of 22 routes" }).waitFor();
  await page.getByRole("heading", { name: "changed", exact: true }).waitFor();
  await page.getByLabel("Policy", { exact: true }).selectOption("cors");
  await page.getByRole("button", { name: "has policies" }).click();
  await page.getByRole("heading", { name: "22 routes" }).waitFor();
  await page.getByLabel("Policy", { exact: true }).selectOption("rateLimit");
  await page.getByRole("heading", { name: "limited", exact: true }).waitFor();
  assert.match(page.url(), /kind=rateLimit/);

  const policy = page.locator(".policies > li", { hasText: "rateLimit" });
  await policy.getByText("applies to route limited").waitFor();
  await policy.locator(".yaml .k", { hasText: /^requests$/ }).waitFor();
  await policy.locator(".yaml .n", { hasText: /^10$/ }).waitFor();
  await policy.getByRole("link", { name: "rateLimit" }).click();
  await page.waitForURL(/policy=rateLimit/);
  await checkLooks(page, "policies-filtered");
  await page.setViewportSize({ width: 1440, height: 900 });
  await page
    .locator(".policies > li", { hasText: "cors" })
    .getByRole("link", { name: /config\.yaml:6/ })
    .waitFor();
  await policy.getByRole("link", { name: /config\.yaml:\d+/ }).click();
  await page.waitForURL(/\/ui\/config\?.*line=\d+/);
  assert.equal((await page.locator(".editor .line.here").textContent())?.trim(), "rateLimit:");
  assert.deepEqual(errors, []);
  await page.close();
});
