/**
 * Measures the bucket store at its limit, in a separate process, so that its memory can be measured.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

const SCRIPT = `
import { BucketStore, MAX_BUCKETS } from "./src/policies/rate-limit/bucket-store.ts";

const rule = { capacity: 100, refill: 100, windowMs: 60_000 };
const store = new BucketStore(rule, MAX_BUCKETS);
globalThis.gc();
const before = process.memoryUsage();

function measure(name: string, count: number, keyOf: (i: number) => string, nowMs: number): void {
  let worstNanos = 0;
  const startedNanos = process.hrtime.bigint();
  let lastNanos = startedNanos;
  for (let i = 0; i < count; i++) {
    store.take(store.open(keyOf(i), nowMs), 1);
    if (i % 100 !== 99) continue;
    const now = process.hrtime.bigint();
    worstNanos = Math.max(worstNanos, Number(now - lastNanos));
    lastNanos = now;
  }
  const nanos = Number(lastNanos - startedNanos) / count;
  console.log("  " + name.padEnd(46), (nanos / 1000).toFixed(2).padStart(6), "µs;  worst 100 in a row", (worstNanos / 1e6).toFixed(1), "ms");
}

console.log("\\n65,536 buckets of one rule");
measure("insert", MAX_BUCKETS, (i) => "user-" + i, 1);
globalThis.gc();
const after = process.memoryUsage();
const megabytes = (after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers) / 1e6;
console.log("  memory".padEnd(48), megabytes.toFixed(1).padStart(6), "MB");
measure("hit", 500_000, (i) => "user-" + (i % MAX_BUCKETS), 2);
measure("insert and evict the least used", 500_000, (i) => "fresh-" + i, 3);
measure("insert and evict one that is full again", 500_000, (i) => "later-" + i, 70_000);
for (let i = 0; i < MAX_BUCKETS; i++) store.take(store.open("drained-" + i, 80_000), 100);
measure("insert and evict, all exhausted", 500_000, (i) => "flood-" + i, 80_001);
`;

export async function benchStore() {
  const folder = mkdtempSync(join(root, "node_modules", ".bench-"));
  try {
    const outfile = join(folder, "store.mjs");
    await build({
      stdin: { contents: SCRIPT, resolveDir: root, loader: "ts" },
      outfile,
      bundle: true,
      platform: "node",
      format: "esm",
      logLevel: "warning",
    });
    execFileSync(process.execPath, ["--expose-gc", outfile], { stdio: "inherit" });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
