/**
 * Journeys as their users go them, once in the web UI alone and once with gwctl alone: one of five servers is broken, only
 * admins may, a token budget per user, why was this refused, change without fear; and an own server, from the UI.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type GwctlResult, gwctl, startGwctl } from "../support/gwctl.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";

const ADMIN = { authorization: "Bearer admin-secret-0123456789" };
const DEVELOPER = { authorization: "Bearer developer-secret-0123456789" };

let browser: TestBrowser;
let gateway: TestGateway;
let page: Page;
const servers: ToolsServer[] = [];

before(async () => {
  if (skip !== false) return;
  for (let i = 0; i < 4; i++)
    servers.push(await startToolsServer([{ name: "find", description: "Finds.", inputSchema: { type: "object" } }]));
  const broken = `import { existsSync } from "node:fs";
if (!existsSync("mended")) { console.error("TOKEN is not set: see the README"); process.exit(1); }
await import(${JSON.stringify(new URL("../../src/demo/mcp-server.js", import.meta.url).href)});
`;
  gateway = await startGateway(configText(), {
    environment: { PATH: process.env.PATH ?? "" },
    files: { "broken.mjs": broken },
  });
  browser = await openBrowser();
  page = (await openPage(browser, `${gateway.adminUrl}/ui/`)).page;
});
after(async () => {
  await browser?.close();
  await gateway?.close();
  for (const server of servers) await server.close();
});

function configText(): string {
  return `# Kept: the team's gateway.
config: { adminAddr: "127.0.0.1:0", allowConfigEdit: true, logging: { level: "info,access=off" } }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: tools
    matches: [{ path: { pathPrefix: /mcp } }]
    backends:
      - mcp:
          failureMode: failOpen
          targets:
${servers.map(({ url }, i) => `            - { name: server${i}, mcp: { url: "${url}" } }\n`).join("")}            - name: broken # Kept: it needs a token.
              stdio: { cmd: node, args: [broken.mjs], cwd: . }
  - name: reports
    matches: [{ path: { pathPrefix: /reports } }]
    policies:
      apiKey:
        keys:
          - { key: admin-secret-0123456789, metadata: { user_id: ada, role: admin } }
          - { key: developer-secret-0123456789, metadata: { user_id: dev, role: developer } }
      authorization: { rules: ['apiKey.role == "admin"'] }
      directResponse: { status: 200, body: report }
  - name: chat
    matches: [{ path: { pathPrefix: /v1 } }]
    policies:
      apiKey:
        keys:
          - { key: admin-secret-0123456789, metadata: { user_id: ada } }
          - { key: developer-secret-0123456789, metadata: { user_id: dev } }
      rateLimit: { local: [{ tokens: 60, unit: Hours, key: apiKey.user_id }] }
    backends:
      - ai: { name: demo, provider: { demo: {} } }
`;
}

const go = (name: string): Promise<unknown> => page.goto(`${gateway.adminUrl}/ui/${name}`);
const ctl = (...args: string[]): Promise<GwctlResult> => gwctl([...args, "-p", new URL(gateway.adminUrl).port]);

async function ask(path: string, headers: Record<string, string>, body?: object): Promise<Response> {
  const response = await fetch(gateway.url() + path, {
    headers: { "content-type": "application/json", ...headers },
    ...(body ? { method: "POST", body: JSON.stringify(body) } : {}),
  });
  await response.text();
  return response;
}

test("3: one of five servers is broken; it is named with its reason, and appears when it is mended", {
  skip,
}, async () => {
  await go("mcp");
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await page.getByRole("tab", { name: "Tools 4" }).waitFor();
  const row = page.locator("tr", { hasText: "broken.mjs" });
  await row.getByText("failed").waitFor();
  await row.getByText("stderr").click();
  await row.getByText("TOKEN is not set: see the README").first().waitFor();
  await page.getByRole("navigation").getByRole("link", { name: "Overview" }).click();
  await page
    .locator(".problems")
    .getByText(/MCP server broken failed/)
    .waitFor();

  const status = await ctl("status");
  assert.match(status.stdout, /✗ MCP server broken failed: /);
  assert.match((await ctl("proxy", "targets")).stdout, /broken .*fail[\s\S]*TOKEN is not set/);

  writeFileSync(join(gateway.folder, "mended"), "");
  await page.getByRole("navigation").getByRole("link", { name: "MCP" }).click();
  await page.getByRole("button", { name: "Disconnect" }).click();
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await page.getByRole("tab", { name: /^Tools (?!4$)\d+/ }).waitFor();
  await row.getByText(/running/).waitFor();
  assert.match((await ctl("proxy", "targets")).stdout, /broken +.*(?:up|running)/);
});

test("6 and 9: a refusal is found by its id, with the rule and what it saw; the next one is traced live", {
  skip,
}, async () => {
  assert.equal((await ask("/reports", ADMIN)).status, 200);
  const refused = await ask("/reports", DEVELOPER);
  assert.equal(refused.status, 403);
  const id = refused.headers.get("x-request-id") ?? "";

  await go("overview");
  await page.getByText("serving").waitFor();
  await page.locator(".requests").getByText("/reports").first().waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to/ }).fill(id);
  await page.keyboard.press("Enter");
  const sentence = (await page.locator(".sentence").textContent()) ?? "";
  assert.match(sentence, /Denied by authorization of route reports/);
  assert.match(sentence, /apiKey\.role.*developer/s);
  await page.getByRole("button", { name: "Trace next similar request" }).click();
  await page.getByText("waiting for a request").waitFor();
  await ask("/reports", DEVELOPER);
  await page.getByText("complete").waitFor();

  const listed = await ctl("requests", "--failed");
  assert.match(listed.stdout, new RegExp(`${id} +403 .*authorization_denied`));
  assert.match((await ctl("explain", id)).stdout, /Denied by `authorization` of route `reports`.*developer/s);
  const trace = startGwctl(["proxy", "trace", "--local", "--raw", "-p", new URL(gateway.adminUrl).port]);
  await trace.said("waiting");
  await ask("/reports", DEVELOPER);
  assert.match((await trace.result).stdout, /"authorization"/);
});

test("7: the budget of one user is used up and that of another is not", { skip }, async () => {
  const talk = {
    model: "demo",
    messages: [{ role: "user", content: "Tell me something long about gateways, please." }],
  };
  let status = 200;
  for (let i = 0; i < 20 && status === 200; i++) status = (await ask("/v1/chat/completions", DEVELOPER, talk)).status;
  assert.equal(status, 429);
  assert.equal((await ask("/v1/chat/completions", ADMIN, talk)).status, 200);

  await go("limits");
  const bucket = (user: string) => page.locator(".buckets li", { hasText: user });
  await bucket("dev")
    .getByText(/exhausted, available in \d+ (?:s|min)/)
    .waitFor();
  await bucket("ada").getByText(/of 60/).waitFor();
  assert.equal(await bucket("dev").locator(".gauge.bad").count(), 1);

  const limits = (await ctl("proxy", "limits")).stdout;
  assert.match(limits, /dev +.* 0\/60 /);
  assert.match(limits, /ada +.* [1-9]\d*\/60 /);
  assert.match((await ctl("top", "--once", "--by", "key")).stdout, /^dev +.*\d+%/m);
  assert.match((await ctl("status")).stdout, /Limit of route chat is exhausted for dev/);
});

test("2: an own server is added with a form, its mistake is shown, and it works once it is right", {
  skip,
}, async () => {
  await go("mcp");
  await page.getByRole("button", { name: "Add a server" }).click();
  await page.getByLabel("Name").fill("mine");
  await page.getByLabel("Command and arguments").fill(`node "${join(gateway.folder, "own-server.mjs")}"`);
  await page.getByRole("button", { name: "Review change" }).click();
  await page.getByText("valid", { exact: true }).waitFor();
  await page.locator(".diff .added", { hasText: "- name: mine" }).waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("active", { exact: true }).waitFor();
  const written = readFileSync(join(gateway.folder, "config.yaml"), "utf8");
  assert.match(written, /# Kept: the team's gateway\.[\s\S]*# Kept: it needs a token\.[\s\S]*- name: mine\n/);
  assert.match(written, /key: admin-secret-0123456789/);

  await page.getByRole("navigation").getByRole("link", { name: "MCP" }).click();
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  const row = page.locator("tr", { hasText: "own-server.mjs" });
  await row.getByText("failed").waitFor();
  await row
    .getByText(/Cannot find module/)
    .first()
    .waitFor({ state: "attached" });
  const demo = new URL("../../src/demo/mcp-server.js", import.meta.url).href;
  writeFileSync(join(gateway.folder, "own-server.mjs"), `import ${JSON.stringify(demo)};\n`);
  await page.getByRole("button", { name: "Disconnect" }).click();
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await row.getByText(/running/).waitFor();
});

test("10: a typo is refused with its place and a suggestion, and the old configuration goes on", { skip }, async () => {
  const good = readFileSync(join(gateway.folder, "config.yaml"), "utf8");
  await go("overview");
  assert.equal(
    await gateway.reload(
      good.replace("directResponse: { status: 200, body: report }", "directRespons: { status: 200 }"),
    ),
    "refused",
  );
  await page.getByText("last reload rejected").waitFor();
  await page
    .locator(".problems")
    .getByText(/config\.yaml:\d+:\d+.*directResponse/)
    .waitFor();
  await page.getByRole("navigation").getByRole("link", { name: "Config" }).click();
  await page.getByText("The last reload was rejected").waitFor();
  assert.equal((await ask("/reports", ADMIN)).status, 200);

  const { stdout } = await ctl("status");
  assert.match(
    stdout,
    /The last reload was rejected, and the configuration before it is active: .*config\.yaml:\d+:\d+.*did you mean "directResponse"/,
  );
  assert.equal(await gateway.reload(good), "loaded");
  await page.getByText("serving").waitFor();
  assert.doesNotMatch((await ctl("status")).stdout, /rejected, and/);
});
