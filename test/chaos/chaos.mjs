/**
 * `npm run chaos [-- --minutes N --seed S --faults-per-second F]`: mixed traffic through a gateway in a process of its
 * own while something breaks every second. Wrong answers, hangs, crashes, failures that no fault explains, processes
 * and descriptors that are left behind, and memory that grows end it with 1. Linux; some faults need root.
 */
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installIfMissing, step } from "../../scripts/steps.mjs";
import { countedChildren } from "./support/counted-children.mjs";
import { startFaults } from "./support/faults.mjs";
import { parseFlags } from "./support/flags.mjs";
import { openLedger } from "./support/ledger.mjs";
import { childrenOf, descriptors, residentBytes } from "./support/process-attributes.mjs";
import { openRandom } from "./support/random.mjs";
import { startTraffic } from "./support/traffic.mjs";
import { endWith, growth, mib, printCounts } from "./support/verdict.mjs";
import { openWorld, pause, until } from "./support/world.mjs";

const WARM_UP_MS = 5_000;
/** After the last fault everything must work again. */
const CALM_MS = 8_000;
const SAMPLES = 12;
const MAX_HEAP_GROWTH_BYTES = 4 * 1024 * 1024;
/** After this no side keeps a connection that is not in use. */
const KEPT_MS = 6_000;
const DESCRIPTOR_SLACK = 4;

const flags = parseFlags(process.argv.slice(2), {
  minutes: { byDefault: 2, min: 0.2, max: 24 * 60 },
  seed: { byDefault: Math.floor(Math.random() * 1e6), min: 0, max: 2 ** 32 - 1 },
  "faults-per-second": { byDefault: 1, min: 0.1, max: 20 },
});
installIfMissing();
step("build", process.execPath, ["scripts/build.mjs"]);

const world = await openWorld();
// Nothing is left behind when the run is given up.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => world.close().finally(() => process.exit(130)));
const { pid } = world.gateway.child;
for (const what of world.missing) console.log(`left out, because there is not: ${what}`);
console.log(
  `seed ${flags.seed}, ${flags.minutes} minutes, ${flags["faults-per-second"]} faults a second, gateway ${pid}`,
);

const ledger = openLedger();
const traffic = startTraffic(world, ledger, openRandom(flags.seed ^ 0xffff));
await pause(WARM_UP_MS);
const before = await inSilence();
const heap = [before.heapBytes];

const faults = startFaults(world, ledger, openRandom(flags.seed), flags["faults-per-second"]);
for (let sample = 0; sample < SAMPLES && world.gateway.crash === undefined; sample++) {
  await pause((flags.minutes * 60_000) / SAMPLES);
  heap.push(await world.gateway.inspector.usedHeapBytes().catch(() => 0));
}
await faults.stop();
const lastFaultMs = Date.now();
await pause(CALM_MS);
const after = world.gateway.crash === undefined ? await inSilence() : before;
traffic.release();
await traffic.stop();
const log = world.log();
const { isEnded, orphans } = await world.close();

ledger.judge();
const { broken } = ledger;
if (world.gateway.crash !== undefined) broken.push(`the gateway ended: ${world.gateway.crash}`);
if (!isEnded) broken.push("the gateway did not end within 15 s of SIGTERM");
if (orphans > 0) broken.push(`${orphans} MCP servers outlived the gateway`);
if (after.children > 0) broken.push(`${after.children} MCP servers of sessions that are over`);
if (after.counted > after.children)
  broken.push(`the gateway counts ${after.counted} children, there are ${after.children}`);
if (after.descriptors > before.descriptors + DESCRIPTOR_SLACK)
  broken.push(`descriptors: ${before.descriptors} before, ${after.descriptors} after`);
const grown = growth(heap.slice(Math.floor(heap.length / 3)));
if (grown > MAX_HEAP_GROWTH_BYTES) broken.push(`the used heap grew by ${mib(grown)} over the last two thirds`);
if (/unhandled|internal error/i.test(log))
  broken.push(`the log says: ${/.*(?:unhandled|internal error).*/i.exec(log)[0]}`);

printCounts(ledger);
console.log(`calm for ${(CALM_MS / 1000).toFixed(0)} s after the last fault at ${new Date(lastFaultMs).toISOString()}`);
console.log(
  `descriptors ${before.descriptors} → ${after.descriptors}, children ${before.children} → ${after.children}, counted ${before.counted} → ${after.counted}`,
);
console.log(
  `used heap ${heap.map(mib).join(", ")}; resident ${mib(before.residentBytes)} → ${mib(after.residentBytes)}`,
);
if (broken.length > 0) {
  const kept = join(tmpdir(), `gateway-chaos-${process.pid}.log`);
  writeFileSync(kept, log);
  console.log(`the gateway's log: ${kept}`);
}
endWith(broken);

/** With no request under way and every abandoned session over. */
async function inSilence() {
  await traffic.hold();
  await until("no MCP server is left", () => childrenOf(pid).length === 0, 12_000).catch(() => undefined);
  await pause(KEPT_MS);
  const attributes = {
    children: childrenOf(pid).length,
    counted: await countedChildren(world),
    descriptors: descriptors(pid),
    heapBytes: await world.gateway.inspector.usedHeapBytes(),
    residentBytes: residentBytes(pid),
  };
  traffic.release();
  return attributes;
}
