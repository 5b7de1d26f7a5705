/**
 * `node scripts/ui-pictures.mjs`: takes the screenshots of docs/web-ui.md. It starts the built gateway with the
 * configuration of a small team (two MCP servers, two models with prices, keys, a rule, a budget), sends traffic of
 * three users for a while, follows the tour in Chromium, and writes PNG files to docs/images. Then it
 * photographs every page in both themes at 1440 and 400 pixels, for a review of the looks, in test-artifacts/gallery.
 * An argument, `docs` or `gallery`, selects one of the two. Needs Chromium and Linux.
 */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { root } from "./steps.mjs";

const SIZE = { width: 1200, height: 760 };
const TRAFFIC_MS = 45_000;
const KEYS = { ada: "ada-0123456789abcdef", ben: "ben-0123456789abcdef", eve: "eve-0123456789abcdef" };

const folder = mkdtempSync(join(tmpdir(), "ui-pictures-"));
// Next to the configuration, like the servers of a team.
for (const name of ["calendar", "tickets"])
  writeFileSync(
    join(folder, `${name}.mjs`),
    `import ${JSON.stringify(pathToFileURL(join(root, "dist", "demo-mcp-server.js")).href)};\n`,
  );
const keys = Object.entries(KEYS)
  .map(
    ([user, key]) =>
      `          - { key: ${key}, metadata: { user_id: ${user}, role: ${user === "ada" ? "admin" : "developer"} } }`,
  )
  .join("\n");
writeFileSync(
  join(folder, "config.yaml"),
  `# The gateway of the platform team.
config:
  adminAddr: 127.0.0.1:0
  logging: { level: info }
gateways:
  internal: { port: 0, address: 127.0.0.1 }
routes:
  - name: assistants # chat for all developers
    gateways: internal
    matches: [{ path: { pathPrefix: /v1 } }]
    policies:
      apiKey:
        keys:
${keys}
      rateLimit:
        local:
          - { tokens: 4000, unit: Minutes, key: apiKey.user_id }
    backends:
      - ai:
          name: models
          provider: { demo: {} }
  - name: tools # MCP for agents
    gateways: internal
    matches: [{ path: { pathPrefix: /mcp } }]
    backends:
      - mcp:
          targets:
            - name: calendar
              stdio: { cmd: node, args: [calendar.mjs], cwd: . }
            - name: tickets
              stdio: { cmd: node, args: [tickets.mjs], cwd: . }
  - name: reports # admins only
    gateways: internal
    matches: [{ path: { pathPrefix: /reports } }]
    policies:
      apiKey:
        keys:
${keys}
      authorization:
        rules: ['apiKey.role == "admin"']
      directResponse: { status: 200, body: "weekly report" }
`,
);
const gateway = spawn(process.execPath, [join(root, "dist", "gateway.js"), "-f", join(folder, "config.yaml")], {
  stdio: ["ignore", "pipe", "inherit"],
});
try {
  const { adminUrl, url } = await addressesOf(gateway);
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM_PATH ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
  });
  const only = process.argv[2];
  if (only === "gallery") await sendTraffic(url, 10_000);
  else await takePictures(browser, adminUrl, url);
  if (only !== "docs") await takeGallery(browser, adminUrl);
  await browser.close();
} finally {
  gateway.kill("SIGTERM");
  rmSync(folder, { recursive: true, force: true });
}

async function takePictures(browser, adminUrl, url) {
  const page = await browser.newPage({ viewport: SIZE, colorScheme: "light" });
  const picture = async (name) => {
    const bytes = await page.screenshot({ animations: "disabled" });
    writeFileSync(join(root, "docs", "images", name), bytes);
    console.log(`${name}: ${(bytes.length / 1024).toFixed(0)} KB`);
  };

  await page.goto(`${adminUrl}/ui/`);
  const traffic = sendTraffic(url);
  await traffic;
  await page.goto(`${adminUrl}/ui/mcp`);
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await page.getByRole("button", { name: /tickets_add/ }).click();
  await page.getByLabel(/^a /).fill("19");
  await page.getByLabel(/^b /).fill("23");
  await page.getByRole("button", { name: "Call" }).click();
  await page.getByText("42", { exact: true }).waitFor();
  await picture("ui-mcp.png");

  await page.locator("nav").getByRole("link", { name: "Overview" }).click();
  await Promise.all([sendTraffic(url, 12_000), wait(12_000)]);
  await picture("ui-overview.png");

  await page.goto(`${adminUrl}/ui/llm`);
  await page.getByRole("button", { name: /^Credential/ }).click();
  await page.getByLabel("Send with each request").selectOption("token");
  await page.getByLabel("Value").fill(KEYS.ada);
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByLabel("Message").fill("What does a gateway do for agents?");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator(".took").first().waitFor();
  await picture("ui-llm.png");

  await page.goto(`${adminUrl}/ui/requests?route=reports&status=4xx`);
  await page.locator("table.requests tbody a").first().click();
  await page.locator(".sentence").waitFor();
  await picture("ui-trace.png");

  // The buckets are full again a minute after the last request.
  const more = sendTraffic(url, 10_000);
  await page.goto(`${adminUrl}/ui/limits`);
  await page.locator(".buckets li").nth(2).waitFor();
  await picture("ui-limits.png");
  await more;

  await page.goto(`${adminUrl}/ui/config`);
  const editor = page.getByLabel("Configuration");
  await editor.waitFor();
  await editor.fill((await editor.inputValue()).replace("tokens: 4000", "token: 5000"));
  await page
    .getByText(/problem/)
    .first()
    .waitFor();
  await picture("ui-config.png");
  await page.close();
}

/** The whole page, not only what fits the window, so that nothing is overlooked. */
async function takeGallery(browser, adminUrl) {
  const folder = join(root, "test-artifacts", "gallery");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const pages = [...readFileSync(join(root, "ui/src/frame/pages.ts"), "utf8").matchAll(/\{ name: "(\w+)"/g)];
  const views = [
    ...pages.map(([, name]) => ({ name, path: name })),
    { name: "overview-route", path: "overview?node=route:reports" },
    { name: "requests-denied", path: "requests?status=4xx", act: (page) => page.locator(".requests tbody a").first() },
    { name: "mcp-playground", path: "mcp", act: (page) => page.getByRole("button", { name: "Connect", exact: true }) },
    { name: "config-form", path: "config?add=rateLimit" },
  ];
  for (const { name, path, act } of views)
    for (const width of [1440, 400])
      for (const colorScheme of ["light", "dark"]) {
        const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
        await page.goto(`${adminUrl}/ui/${path}`);
        await page.locator("main h1").waitFor();
        await act?.(page).click();
        await wait(500);
        while ((await page.locator("main .skeleton").count()) > 0) await wait(50);
        const height = await page.evaluate("document.querySelector('main').scrollHeight");
        await page.setViewportSize({ width, height: Math.min(4_000, Math.max(900, height)) });
        await page.screenshot({ path: join(folder, `${name}-${colorScheme}-${width}.png`), animations: "disabled" });
        await page.close();
      }
  console.log(`${views.length * 4} pictures in ${folder}`);
}

/** Three users: one chats, one requests reports without permission, and agents list and call tools. */
async function sendTraffic(url, forMs = TRAFFIC_MS) {
  const untilMs = Date.now() + forMs;
  const people = Object.entries(KEYS);
  for (let i = 0; Date.now() < untilMs; i++) {
    const [user, key] = people[i % people.length];
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const question = `Question ${i} of ${user}: how do I rotate the key of a service without downtime?`;
    // One of them pastes whole files.
    const content = user === "eve" ? `${question} ${"And this is the log. ".repeat(120)}` : question;
    const body = JSON.stringify({ model: i % 3 === 0 ? "large" : "small", messages: [{ role: "user", content }] });
    await Promise.all([
      call(`${url}/v1/chat/completions`, { method: "POST", headers, body }),
      i % 4 === 0 ? call(`${url}/reports/weekly`, { headers }) : undefined,
      i % 16 === 0 ? call(`${url}/unknown`, {}) : undefined,
    ]);
    await wait(250);
  }
}

async function call(address, init) {
  const response = await fetch(address, init);
  await response.arrayBuffer();
}

async function addressesOf(child) {
  let text = "";
  for await (const chunk of child.stdout) {
    text += chunk;
    const admin = /admin interface[^\n]*?(http:\/\/127\.0\.0\.1:\d+)/.exec(text)?.[1];
    if (admin === undefined) continue;
    child.stdout.resume();
    const { listeners } = await (await fetch(`${admin}/config_dump`)).json();
    return { adminUrl: admin, url: `http://127.0.0.1:${listeners[0].port}` };
  }
  throw new Error(`the gateway did not start:\n${text}`);
}
