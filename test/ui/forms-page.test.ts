/**
 * Forms add routes, backends, policies, and models to the configuration. The change is shown and checked before it is
 * saved, several forms can add to one edit, and the gateway then enforces it.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

async function openForm(page: Page, title: string): Promise<void> {
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("link", { name: title }).click();
  await page.getByRole("dialog", { name: title }).waitFor();
}

async function review(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Review change" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByText("valid", { exact: true }).waitFor();
}

test("a route, a backend and policies are added with forms, reviewed as one edit, and enforced once saved", {
  skip,
}, async (context) => {
  const backend = await backendFor(context);
  const gateway = await gatewayFor(
    context,
    `# Kept: the team's gateway.
config: { allowConfigEdit: true, logging: { level: "info,access=off" } }
gateways:
  default: { port: 0, address: 127.0.0.1 }
routes:
  - name: api # Kept: beside a value.
    matches: [{ path: { pathPrefix: /api } }]
    backends:
      - host: ${backend.host}
`,
  );
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/config`, { width: 1440 });
  await openForm(page, "Add a route");
  await page.getByLabel("Name", { exact: true }).fill("api");
  await page.getByLabel("Path value").fill("/reports");
  await page.getByLabel("Backend").fill(backend.host);
  await page.getByRole("button", { name: "Review change" }).click();
  await page.getByText("there is already one named api").waitFor();
  await checkLooks(page, "form-route");
  await page.getByLabel("Name", { exact: true }).fill("reports");
  await review(page);
  await page.getByText("+ route reports added").waitFor();

  await openForm(page, "Add a rate limit");
  assert.deepEqual(await page.getByLabel("Applies to").locator("option").allTextContents(), [
    "route api",
    "listener default",
  ]);
  await page.getByLabel("Limit", { exact: true }).fill("2");
  await page.getByLabel(/^Per/).selectOption("hour");
  await review(page);
  await openForm(page, "Add an authorization rule");
  await page.getByLabel("Rule (CEL)").fill('request.headers["x-role"] == "admin"');
  await checkLooks(page, "form-rule");
  await review(page);
  await openForm(page, "Add a backend");
  await page.getByLabel("Address").fill("127.0.0.1:1");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page
    .getByText(/± route api changed: .*policies/)
    .first()
    .waitFor();
  await page.locator(".diff .added", { hasText: "rules:" }).waitFor();
  await checkLooks(page, "form-review");
  const loaded = gateway.logged("configuration loaded");
  await page.getByRole("button", { name: "Save" }).click();
  await loaded;
  assert.match(
    readFileSync(join(gateway.folder, "config.yaml"), "utf8"),
    new RegExp(`^# Kept: the team's gateway\\.[\\s\\S]* {2}- name: api # Kept: beside a value\\.
 {4}matches: \\[\\{ path: \\{ pathPrefix: /api \\} \\}\\]
 {4}backends:
 {6}- host: ${backend.host}
 {4}policies:
 {6}rateLimit:
 {8}local:
 {10}- \\{ requests: 2, unit: Hours \\}
 {6}authorization:
 {8}rules:
 {10}- 'request\\.headers\\["x-role"\\] == "admin"'
 {2}- name: reports
`),
  );
  const status = async (path: string, role: string): Promise<number> => {
    const response = await fetch(gateway.url() + path, { headers: { "x-role": role } });
    await response.arrayBuffer();
    return response.status;
  };
  assert.equal(await status("/reports", "none"), 200);
  assert.equal(await status("/api", "none"), 403);
  assert.deepEqual(
    [await status("/api", "admin"), await status("/api", "admin"), await status("/api", "admin")],
    [200, 200, 429],
  );

  await page.goto(`${gateway.adminUrl}/ui/overview?node=route:reports`);
  await page.getByRole("link", { name: "API keys", exact: true }).click();
  await page.getByRole("dialog", { name: "Require API keys" }).waitFor();
  assert.equal(await page.getByLabel("Applies to").inputValue(), "route reports");
  await page.getByLabel("Accept").selectOption("variable");
  await page.getByLabel("Environment variable", { exact: true }).fill("CI_KEY");
  await page.getByLabel("User (apiKey.user_id)").fill("ci");
  await page.getByRole("button", { name: "Review change" }).click();
  await page.locator(".diff .added", { hasText: 'key: "${CI_KEY}", metadata: { user_id: ci }' }).waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});

test("a model can be added for every provider", { skip }, async (context) => {
  const gateway = await gatewayFor(
    context,
    "llm: { port: 0, address: 127.0.0.1, models: [{ name: first, provider: demo }] }\n",
  );
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/llm`, { width: 1440 });
  await page.getByRole("button", { name: "Add a model" }).click();
  const provider = page.getByLabel(/^Provider/);
  await provider.locator("option").nth(1).waitFor({ state: "attached" });
  const names = await provider.locator("option").allTextContents();
  for (const name of ["openAI", "anthropic", "gemini", "vertex", "bedrock", "azure", "groq", "ollama", "xai", "demo"])
    assert.ok(names.includes(name), name);
  assert.ok(names.includes("openAICompatible") && !names.includes("openai"));
  await provider.selectOption("bedrock");
  await page.getByLabel("Name that clients request").fill("claude");
  assert.equal(await page.getByRole("button", { name: "Review change" }).isDisabled(), true, "the region is missing");
  await page.getByLabel("AWS region").fill("us-east-1");
  await checkLooks(page, "form-model");
  await review(page);
  await page.locator(".diff .added", { hasText: "awsRegion: us-east-1" }).waitFor();
  assert.deepEqual(errors, []);
  await page.close();
});
