/**
 * `npm run test:ui-cost -- --seconds 600`: measures the cost of an open page of the web UI for the gateway. It starts
 * the built gateway with the demo configuration, measures its CPU time without a page and then with each page open, and
 * its memory after the first and after the last minute. Fails above 0.5% of a core, or if memory grows. Needs Linux and
 * Chromium.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { chromium } from "playwright-core";
import { root } from "./steps.mjs";

const MAX_SHARE = 0.005;
/** Measured after a full garbage collection; covers only the growth of the gateway's own history in that time. */
const MAX_GROWTH_BYTES = 1024 * 1024;
const TICKS_PER_SECOND = 100;
const SETTLE_MS = 30_000;
const PAGES = ["overview", "requests", "mcp", "llm", "limits", "config", "runtime"];

const at = process.argv.indexOf("--seconds");
const seconds = at < 0 ? 600 : Number(process.argv[at + 1]);
const folder = mkdtempSync(join(tmpdir(), "ui-cost-"));
const config = join(folder, "config.yaml");
writeFileSync(
  config,
  `config: { adminAddr: "127.0.0.1:0", logging: { level: info } }
mcp:
  port: 0
  targets: [{ name: demo, stdio: { cmd: "${process.execPath}", args: ["${join(root, "dist", "demo-mcp-server.js")}"] } }]
llm:
  port: 0
  models: [{ name: demo, provider: { demo: {} } }]
`,
);
/** A signal that means nothing to the gateway. */
const flags = ["--expose-gc", "--import", 'data:text/javascript,process.on("SIGALRM", () => globalThis.gc())'];
const gateway = spawn(process.execPath, [...flags, join(root, "dist", "gateway.js"), "-f", config], {
  stdio: ["ignore", "pipe", "inherit"],
});
let failed = false;
try {
  const adminUrl = await adminUrlOf(gateway);
  // Work that continues after the start would count as idle and hide the cost of the pages.
  await wait(SETTLE_MS);
  const idle = await shareOf(60);
  console.log(`no page open: ${percent(idle)} of a core`);
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM_PATH ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
  });
  const page = await browser.newPage();
  for (const name of PAGES) {
    await page.goto(`${adminUrl}/ui/${name}`);
    // Loading is not what an open page costs.
    await wait(5_000);
    const before = await heapBytes(adminUrl);
    const share = await shareOf(name === "overview" ? seconds : Math.max(60, seconds / 20));
    const growth = (await heapBytes(adminUrl)) - before;
    const isBad = share - idle > MAX_SHARE || growth > MAX_GROWTH_BYTES;
    failed ||= isBad;
    console.log(
      `${isBad ? "FAIL " : ""}${name}: ${percent(share)} of a core (${percent(share - idle)} more than without), heap ${growth < 0 ? "-" : "+"}${(Math.abs(growth) / 1024).toFixed(0)} KiB`,
    );
  }
  await browser.close();
} finally {
  gateway.kill("SIGTERM");
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);

async function adminUrlOf(child) {
  let text = "";
  for await (const chunk of child.stdout) {
    text += chunk;
    const found = /http:\/\/127\.0\.0\.1:\d+(?=\/ui|\b)/.exec(text.slice(text.search(/admin interface/)));
    if (/admin interface/.test(text) && found) {
      child.stdout.resume();
      return found[0];
    }
  }
  throw new Error(`the gateway did not start:\n${text}`);
}

async function shareOf(forSeconds) {
  const before = ticks();
  const startedMs = performance.now();
  await wait(forSeconds * 1_000);
  return ((ticks() - before) / TICKS_PER_SECOND) * (1_000 / (performance.now() - startedMs));
}

function ticks() {
  const fields = readFileSync(`/proc/${gateway.pid}/stat`, "utf8").split(") ")[1].split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

/** Without what waits for the collector: an idle gateway collects once in several minutes. */
async function heapBytes(adminUrl) {
  process.kill(gateway.pid, "SIGALRM");
  await wait(1_000);
  const { heap } = await (await fetch(`${adminUrl}/memory`)).json();
  return heap.usedBytes;
}

function percent(share) {
  return `${(share * 100).toFixed(2)} %`;
}
