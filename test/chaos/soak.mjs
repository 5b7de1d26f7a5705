/**
 * `npm run soak [-- --minutes N --seed S --workers W --history 1]`: steady mixed traffic, sessions that are deleted and
 * abandoned, a reload every minute, and nothing that breaks. The used heap (after a collection) may grow by 1 MiB over
 * the last two thirds, the resident memory by 10 MiB, descriptors and children not at all; no request may fail. With
 * `--history 1`, requests are also recorded in SQLite, and no row may be dropped or left waiting.
 */
import { renameSync, writeFileSync } from "node:fs";
import { installIfMissing, step } from "../../scripts/steps.mjs";
import { countedChildren } from "./support/counted-children.mjs";
import { parseFlags } from "./support/flags.mjs";
import { openLedger } from "./support/ledger.mjs";
import { childrenOf, descriptors, residentBytes } from "./support/process-attributes.mjs";
import { openRandom } from "./support/random.mjs";
import { startTraffic } from "./support/traffic.mjs";
import { endWith, growth, mib, printCounts } from "./support/verdict.mjs";
import { openWorld, pause, until } from "./support/world.mjs";

const MIB = 1024 * 1024;
const RELOAD_EVERY_MS = 60_000;
const LIMITS = { heapBytes: MIB, residentBytes: 10 * MIB, descriptors: 4, children: 0, counted: 0 };
const SAMPLES = 30;
/** After this no side keeps a connection that is not in use. */
const KEPT_MS = 6_000;

const flags = parseFlags(process.argv.slice(2), {
  minutes: { byDefault: 10, min: 0.5, max: 7 * 24 * 60 },
  seed: { byDefault: 1, min: 0, max: 2 ** 32 - 1 },
  /** Of each kind of traffic. */
  workers: { byDefault: 2, min: 1, max: 100 },
  history: { byDefault: 0, min: 0, max: 1 },
});
installIfMissing();
step("build", process.execPath, ["scripts/build.mjs"]);

const hasHistory = flags.history === 1;
const world = await openWorld({ hasHistory });
// Nothing is left behind when the run is given up.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => world.close().finally(() => process.exit(130)));
const { pid } = world.gateway.child;
console.log(`${flags.minutes} minutes, gateway ${pid}`);
const ledger = openLedger();
const traffic = startTraffic(world, ledger, openRandom(flags.seed), flags.workers);
let reloads = 0;
const reloading = setInterval(() => {
  writeFileSync(`${world.config.file}~`, world.config.text(`reload ${++reloads}`));
  renameSync(`${world.config.file}~`, world.config.file);
}, RELOAD_EVERY_MS);

const historyStatus = async () => (await fetch(`${world.adminUrl}/debug/usage/status`)).json();
const samples = [];
const unwritten = [];
const startedMs = Date.now();
const endMs = startedMs + flags.minutes * 60_000;
while (Date.now() < endMs && world.gateway.crash === undefined) {
  await pause(Math.max(5_000, (flags.minutes * 60_000) / SAMPLES));
  await traffic.hold();
  await until("no MCP server is left", () => childrenOf(pid).length === 0, 12_000).catch(() => undefined);
  await pause(KEPT_MS);
  const sample = {
    heapBytes: await world.gateway.inspector.usedHeapBytes(),
    externalBytes: await world.gateway.inspector.externalBytes(),
    residentBytes: residentBytes(pid),
    descriptors: descriptors(pid),
    children: childrenOf(pid).length,
    counted: await countedChildren(world),
  };
  const history = hasHistory ? await historyStatus() : undefined;
  traffic.release();
  samples.push(sample);
  const minute = ((Date.now() - startedMs) / 60_000).toFixed(1);
  console.log(
    `minute ${minute}: heap ${mib(sample.heapBytes)}, external ${mib(sample.externalBytes)}, resident ${mib(sample.residentBytes)}, descriptors ${sample.descriptors}, children ${sample.children}, counted ${sample.counted}`,
  );
  if (history === undefined) continue;
  const { queuedRows, spoolBytes, written, spooled, dropped } = history;
  console.log(`  history: ${written} rows written, ${spooled} spooled, ${dropped} dropped, ${queuedRows} in the queue`);
  if (queuedRows + spoolBytes + dropped > 0) unwritten.push(`rows were not written: ${JSON.stringify(history)}`);
}
clearInterval(reloading);
await traffic.stop();
const { isEnded, orphans } = await world.close();

ledger.judge();
const { broken } = ledger;
broken.push(...unwritten);
if (world.gateway.crash !== undefined) broken.push(`the gateway ended: ${world.gateway.crash}`);
if (!isEnded) broken.push("the gateway did not end within 15 s of SIGTERM");
if (orphans > 0) broken.push(`${orphans} MCP servers outlived the gateway`);
const counted = samples.slice(Math.floor(samples.length / 3));
printCounts(ledger);
for (const [name, limit] of Object.entries(LIMITS)) {
  const grown = growth(counted.map((sample) => sample[name]));
  const shown = name.endsWith("Bytes") ? mib(grown) : grown.toFixed(1);
  console.log(`${name}: ${shown} over the last two thirds (${counted.length} samples, ${reloads} reloads)`);
  if (grown > limit) broken.push(`${name} grew by ${shown}`);
}
endWith(broken);
