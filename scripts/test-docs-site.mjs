/**
 * `npm run test:docs-site`: opens every page of the documentation site in Chromium, as a gateway serves it at /docs. Each
 * page must load without console errors or failed requests, its links must lead to pages and headings that exist, it
 * must pass axe, and it must fit a screen of 400 pixels. The search and the dark mode are tried once. Run `npm run
 * build` and `npm run docs` before; `-- llm reference/` opens only pages with these prefixes.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { docsOut, filesBelow } from "./pack-docs.mjs";
import { root } from "./steps.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TABS = 3;
/** Only a page that never loads takes this long, also on a busy machine. */
const PATIENCE_MS = 300_000;
const CONFIG =
  "config: { adminAddr: '127.0.0.1:0' }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: []\n";

if (!existsSync(join(root, "dist", "docs", "index.html.gz"))) {
  console.error("dist/docs is missing: run `npm run build` and `npm run docs` first");
  process.exit(1);
}
const only = process.argv.slice(2);
const problems = [];
const gateway = spawn(process.execPath, [join(root, "dist", "gateway.js"), "-f", "-"], {
  stdio: ["pipe", "pipe", "inherit"],
});
gateway.stdin.end(CONFIG);
const admin = await adminUrl(gateway.stdout);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM_PATH ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  const names = filesBelow(docsOut).filter((name) => name.endsWith(".html") && name !== "404.html");
  const ids = new Map(names.map((name) => [`/docs/${name.replaceAll("\\", "/")}`, idsIn(name)]));
  const visited = names.filter((name) => only.length === 0 || only.some((part) => name.startsWith(part)));
  const waiting = [...visited];
  const visitAll = async () => {
    for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
      checkLinks(name, await visit(name), ids);
      if (waiting.length % 20 === 0) console.log(`${waiting.length} pages left`);
    }
  };
  await Promise.all(Array.from({ length: TABS }, visitAll));
  await trySearch();
  console.log(`docs site: ${visited.length} of ${names.length} pages, ${problems.length} problems`);
} finally {
  await browser.close();
  gateway.kill();
}
for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 ? 0 : 1);

async function visit(name) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  page.setDefaultTimeout(PATIENCE_MS);
  watch(page, name);
  await page.goto(`${admin}/docs/${name}`, { waitUntil: "load" });
  await checkAxe(page, name, "light");
  const found = await page.evaluate(() => ({
    links: [...document.querySelectorAll("a[href]")].map(({ href }) => href),
    images: [...document.images].filter(({ naturalWidth }) => naturalWidth === 0).map(({ src }) => src),
  }));
  for (const image of found.images) problems.push(`${name}: the image ${image} does not load`);
  await page.setViewportSize({ width: 400, height: 800 });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  if (width > 400) problems.push(`${name}: ${width} pixels wide on a screen of 400`);
  await page.close();
  return found.links;
}

function idsIn(name) {
  const html = readFileSync(join(docsOut, name), "utf8");
  return new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));
}

function watch(page, name) {
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(`${name}: console: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`${name}: ${error.message}`));
  page.on("response", (response) => {
    if (response.status() >= 400) problems.push(`${name}: ${response.status()} ${response.url()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(admin) && !request.url().startsWith("data:"))
      problems.push(`${name}: requests ${request.url()}, which is not part of the site`);
  });
}

async function checkAxe(page, name, theme) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  for (const { id, nodes } of violations)
    problems.push(`${name}: axe (${theme}): ${id} ×${nodes.length}, for example ${nodes[0].html.slice(0, 160)}`);
}

function checkLinks(name, links, ids) {
  for (const link of new Set(links)) {
    const { origin, pathname, hash } = new URL(link);
    if (origin !== new URL(admin).origin || !pathname.startsWith("/docs")) continue;
    const target =
      ids.get(pathname) ?? ids.get(`${pathname}.html`) ?? ids.get(`${pathname.replace(/\/?$/, "/")}index.html`);
    if (target === undefined) problems.push(`${name}: the link ${pathname} leads nowhere`);
    else if (hash !== "" && !target.has(decodeURIComponent(hash.slice(1))))
      problems.push(`${name}: ${pathname} has no heading ${hash}`);
  }
}

async function trySearch() {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: "dark" });
  page.setDefaultTimeout(PATIENCE_MS);
  watch(page, "search");
  await page.goto(`${admin}/docs/`, { waitUntil: "load" });
  if (!(await page.evaluate(() => document.documentElement.classList.contains("dark"))))
    problems.push("the site does not follow the dark mode of the system");
  await checkAxe(page, "index.html", "dark");
  await page.keyboard.press("Control+k");
  await page.locator(".VPLocalSearchBox input").fill("keycloak audience mapper");
  const first = page.locator(".VPLocalSearchBox .result").first();
  await first.waitFor();
  await first.click();
  await page.waitForURL(/keycloak/);
  await page.close();
}

async function adminUrl(output) {
  for await (const line of createInterface({ input: output })) {
    const found = /admin interface ui=(http\S+)\/ui/.exec(line);
    if (found) {
      output.resume();
      return found[1];
    }
  }
  throw new Error("the gateway did not start");
}
