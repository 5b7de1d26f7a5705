/**
 * Compares the request parser with Node's on random bytes: `node scripts/compare-parsers.mjs --count 1000000 --seed 1`.
 * `--only 4711` shows one case. Exits with 1 if the two differ for no listed reason.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { root } from "./steps.mjs";

const MAX_SHOWN = 10;
const { values: flags } = parseArgs({
  options: {
    count: { type: "string", default: "100000" },
    seed: { type: "string", default: "1" },
    only: { type: "string" },
  },
});

const support = (name) => join(root, "test", "support", "http1", name);
const folder = mkdtempSync(join(root, "build-compare-"));
const outfile = join(folder, "compare.mjs");
await build({
  stdin: {
    contents: ["compare-parsers", "node-requests", "read-requests", "request-bytes", "../random"]
      .map((name) => `export * from ${JSON.stringify(support(`${name}.ts`))};`)
      .join("\n"),
    resolveDir: root,
  },
  outfile,
  bundle: true,
  platform: "node",
  format: "esm",
  logLevel: "warning",
});
const { compareReadings, nodeReader, randomFrom, readRequests, requestBytes, STRICTER } = await import(
  pathToFileURL(outfile).href
);
rmSync(folder, { recursive: true });

const node = nodeReader();
const seed = Number(flags.seed);
const stricter = new Map();
const counts = { cases: 0, requests: 0, refusals: 0, complaints: 0 };
const first = flags.only === undefined ? 0 : Number(flags.only);
const last = flags.only === undefined ? Number(flags.count) : first + 1;
const began = performance.now();

for (let i = first; i < last; i++) {
  const pieces = requestBytes(randomFrom(seed * 1_000_003 + i));
  const ours = readRequests(pieces);
  const theirs = node.read(pieces);
  const { complaint, stricter: reason } = compareReadings(ours, theirs);
  counts.cases += 1;
  counts.requests += ours.requests.filter(({ complete }) => complete).length;
  counts.refusals += ours.refusal === undefined ? 0 : 1;
  if (reason !== undefined) stricter.set(reason, (stricter.get(reason) ?? 0) + 1);
  if (complaint !== undefined) {
    counts.complaints += 1;
    if (counts.complaints <= MAX_SHOWN)
      console.log(`case ${i}: ${complaint}\n  ${JSON.stringify(pieces.map((piece) => piece.toString("latin1")))}`);
  }
  if (flags.only !== undefined) console.dir({ pieces: pieces.map(String), ours, theirs }, { depth: 5 });
  if (i % 10_000 === 0) await new Promise(setImmediate);
}
node.close();
for (const [reason, times] of [...stricter].sort((a, b) => b[1] - a[1]))
  console.log(`${String(times).padStart(8)}  ${reason}${STRICTER[reason] ? ` (${STRICTER[reason]})` : ""}`);
console.log(
  `${counts.cases} cases, ${counts.requests} requests, ${counts.refusals} refused by us, ${counts.complaints} complaints, ${((performance.now() - began) / 1000).toFixed(1)} s, seed ${seed}`,
);
process.exit(counts.complaints === 0 ? 0 : 1);
