/**
 * The details of a request: a summary, a sentence with the reason for every response that is not a success, links to
 * the policy, limit or budget and its line, and the decisive event of a kept trace.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;
let backend: TestBackend;
let gateway: TestGateway;

const config = (host: string): string => `
config:
  tracing: { keepFailed: { maxBytes: 1000000 } }
gateways: { default: { port: 0 } }
routes:
  - name: broken
    matches: [{ path: { pathPrefix: /broken } }]
    backends: [{ host: "${host}" }]
  - name: slow
    matches: [{ path: { pathPrefix: /slow } }]
    policies:
      timeout:
        # How long clients wait.
        requestTimeout: 50ms
    backends: [{ host: "${host}" }]
  - name: closed
    matches: [{ path: { pathPrefix: /closed } }]
    policies:
      authorization:
        rules:
          - 'request.method == "GET"'
          - 'request.headers["x-role"] == "admin"'
      directResponse: { status: 200 }
  - name: limited
    matches: [{ path: { pathPrefix: /limited } }]
    policies:
      rateLimit:
        local:
          - { requests: 100, unit: Minutes }
          - { requests: 1, unit: Hours }
      directResponse: { status: 200 }
  - name: chat
    matches: [{ path: { pathPrefix: /v1 } }]
    policies:
      apiKey: { keys: [{ key: key-of-ada, metadata: { user_id: ada } }] }
      budgets:
        limits:
          - { name: other, tokens: 1000000, per: day }
          - { name: tiny, tokens: 10, per: day }
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
`;

before(async () => {
  if (skip !== false) return;
  browser = await openBrowser();
  backend = await startBackend((request, response) => {
    // Nothing responds to a request that must time out.
    if (request.url === "/slow") return;
    response.statusCode = 500;
    response.end("no");
  });
  gateway = await startGateway(config(backend.host));
});
after(async () => {
  await browser?.close();
  await gateway?.close();
  await backend?.close();
});

/** Sends a request and opens its details. */
async function opened(path: string, times = 1, init: RequestInit = {}): Promise<{ page: Page; errors: string[] }> {
  let id = "";
  for (let i = 0; i < times; i++) {
    const response = await fetch(gateway.url() + path, init);
    id = response.headers.get("x-request-id") ?? "";
    await response.arrayBuffer();
  }
  const opening = await openPage(browser, `${gateway.adminUrl}/ui/requests?id=${id}`, { width: 1440 });
  await opening.page.locator(".summary").waitFor();
  return opening;
}

async function reason(page: Page): Promise<string> {
  return (await page.locator(".sentence > p").first().textContent()) ?? "";
}

/** Follows the link to the configuration and returns the line that it shows. */
async function followedLine(page: Page, name: string | RegExp): Promise<string> {
  await page
    .locator(".sentence")
    .getByRole("link", { name, exact: typeof name === "string" })
    .click();
  await page.waitForURL(/\/ui\/config\?.*line=\d+/);
  return ((await page.locator(".editor .line.here").textContent()) ?? "").trim();
}

const FILE_LINK = /^config\.yaml:\d+$/;

test("a backend's own error has a reason, and its result is selected", { skip }, async () => {
  const { page, errors } = await opened("/broken");
  assert.match(
    await reason(page),
    /^Backend broken\/backend0 responded with 500 after .*\. The error is the backend's: no policy rejected/,
  );
  await page.getByRole("heading", { name: "Backend Result: 500" }).waitFor();
  assert.equal(await page.locator('.waterfall button[aria-current="true"]').textContent(), "Backend Result: 500");
  await checkLooks(page, "request-backend-error");
  await page.setViewportSize({ width: 1440, height: 900 });
  assert.equal(await followedLine(page, FILE_LINK), "- name: broken");
  assert.deepEqual(errors, []);
  await page.close();
});

test("a timeout leads to its setting", { skip }, async () => {
  const { page } = await opened("/slow");
  assert.match(await reason(page), /^Backend slow\/backend0 failed .*504.* within 50 ms \(timeout\.requestTimeout\)/);
  await page.locator('.waterfall button[aria-current="true"]', { hasText: /^Backend Result/ }).waitFor();
  assert.equal(await followedLine(page, FILE_LINK), "requestTimeout: 50ms");
  await page.close();
});

test("a denied request leads to its policy and its rule", { skip }, async () => {
  const { page } = await opened("/closed");
  assert.match(await reason(page), /^Denied by authorization of route closed \(403\): the rule .*x-role/);
  await checkLooks(page, "request-denied");
  await page.setViewportSize({ width: 1440, height: 900 });
  assert.match(await followedLine(page, /x-role/), /^- 'request\.headers\["x-role"\] == "admin"'$/);
  await page.goBack();
  await page.locator(".sentence").getByRole("link", { name: "authorization", exact: true }).click();
  await page.waitForURL(/\/ui\/policies\?route=closed&policy=authorization/);
  await page.close();
});

test("a limited request leads to the limit and its line", { skip }, async () => {
  const { page } = await opened("/limited", 2);
  assert.match(await reason(page), /^Limited by rateLimit of route limited \(429\): the limit of 1 request/);
  assert.equal(await followedLine(page, FILE_LINK), "- { requests: 1, unit: Hours }");
  await page.goBack();
  await page.locator(".sentence").getByRole("link", { name: "Limit", exact: true }).click();
  await page.waitForURL(/\/ui\/limits\?rule=limited/);
  await page.getByRole("heading", { name: "1 request per hour" }).waitFor();
  await page.close();
});

test("an LLM call is summarized, and an exhausted budget leads to it", { skip }, async () => {
  const call = {
    method: "POST",
    headers: { authorization: "Bearer key-of-ada", "content-type": "application/json", "user-agent": "agent/7" },
    body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "Hello!" }] }),
  };
  const { page } = await opened("/v1/chat/completions", 1, call);
  const summary = async (): Promise<string[]> => page.locator(".summary > div").allTextContents();
  assert.deepEqual(
    (await summary()).map((text) => text.replace(/\d+ in/, "N in").replace(/\d+ out/, "N out")),
    [
      "Routechat",
      "Backenddemo",
      "Subjectada",
      "Modeldemo (demo)",
      "TokensN in, N out",
      "Cost–",
      "Client127.0.0.1 · agent/7",
    ],
  );
  assert.equal(await page.locator(".sentence").count(), 0, "a success needs no reason");
  await checkLooks(page, "request-llm");
  await page.close();

  const rejected = (await opened("/v1/chat/completions", 1, call)).page;
  await rejected.setViewportSize({ width: 1440, height: 900 });
  assert.match(await reason(rejected), /^Rejected by budgets of route chat \(429\): the budget tiny \(/);
  assert.equal(await followedLine(rejected, FILE_LINK), "- { name: tiny, tokens: 10, per: day }");
  await rejected.goBack();
  await rejected.locator(".sentence").getByRole("link", { name: "Budget", exact: true }).click();
  await rejected.waitForURL(/\/ui\/limits\?budget=tiny/);
  await rejected.getByRole("heading", { name: /^Budget tiny/ }).waitFor();
  await rejected.close();
});

test("a request without a route leads to the listener", { skip }, async () => {
  const { page } = await opened("/nowhere");
  assert.match(await reason(page), /^No route matched \(404\)/);
  assert.match(await followedLine(page, FILE_LINK), /default/);
  await page.close();
});
