/**
 * `npm run inputs`: prints what peers can send, as listed in `src/base/peer-inputs.ts`, with the reader, limits, and
 * memory account of each input, and the shapes of its hostile inputs (`test/inputs/`). `npm run inputs -- <peer>` prints
 * only one peer. `npm run inputs -- --measure [entry…]` measures the readers with these inputs (`test/inputs/measure.ts`).
 * `npm run inputs -- --faults [name…]` finds out whether the tests find known faults (`scripts/input-faults.mjs`).
 * `inputsPage` writes the list as a page.
 */
import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { runFaults } from "./input-faults.mjs";
import { inlineOnDemand } from "./on-demand.mjs";
import { root } from "./steps.mjs";

const HEAD = ["Input", "Reader", "Bytes", "Items", "Depth", "Open", "Ratio", "Memory account"];

/** Returns the page with a table for each peer. */
export function inputsPage(inputs, note) {
  const lines = [
    "# Peer inputs",
    "",
    note,
    "",
    "Clients, servers, providers, services, stores, files, and other processes of the gateway are peers. Every message that the",
    "gateway reads from a peer has one entry in `src/base/peer-inputs.ts`, which names its reader, its limits, and the account that",
    "its memory is charged to. An empty cell means that the size bounds the value. For compressed inputs, the size is that of the",
    "output, and the ratio limits the part of it beyond 256 KiB. `npm run inputs` prints the list.",
    "",
    "`test/inputs/` makes hostile inputs of at least five shapes for each entry: many small items, one large item, equal names, deep",
    "nesting, highly compressed, never completed, out of order, and invalid at the end. `npm test` counts the executed blocks of the",
    "gateway's reader, and the bytes that built-in functions touch, at n, 2n, and 4n bytes: each doubling adds at most 2.3 times the work of",
    "the one before. `npm run inputs -- --measure` measures CPU time, the longest piece of work on the main thread (50 ms at most), and memory.",
    "",
    "`test/inputs/faults.mjs` lists faults, such as a missing check or a removed limit. `npm run inputs -- --faults [name…]` puts each of them,",
    "or those whose name contains one of the texts, into a temporary copy of the tree, runs the tests of its area there, and prints which tests",
    "find it. The faults are in three sets, which different people chose; the text `set 2` selects the second. A fault that no test finds shows",
    "a class of mistakes without a test.",
    "",
  ];
  for (const [peer, ofPeer] of groups(inputs))
    lines.push(`## ${peer}`, "", ...table([HEAD, HEAD.map(() => "---"), ...ofPeer.map(cells)]), "");
  return `${lines.join("\n").trimEnd()}\n`;
}

function groups(inputs) {
  const found = new Map();
  for (const input of inputs) found.set(input.peer, [...(found.get(input.peer) ?? []), input]);
  return found;
}

function table(rows) {
  return rows.map((row) => (row[0] === "---" ? `|${row.join("|")}|` : `| ${row.join(" | ")} |`));
}

function cells({ id, reader, limits: { bytes, items, depth, open, ratio }, account }) {
  return [`\`${id}\``, reader, size(bytes), count(items), count(depth), count(open), count(ratio), account];
}

function size(limit) {
  if (typeof limit === "object") return `\`${limit.setting}\`, at most ${size(limit.ceiling)}`;
  if (limit < 1024) return `${limit} B`;
  return limit < 1024 * 1024 ? `${limit / 1024} KiB` : `${limit / 1024 / 1024} MiB`;
}

function count(limit) {
  return limit === undefined || limit === Number.POSITIVE_INFINITY ? "" : limit.toLocaleString("en-US");
}

/** Bundles the list and the measurement, calls `use` with their folder, and removes it. */
async function withBundle(use) {
  const outdir = join(root, `build-inputs-${process.pid}`);
  try {
    await build({
      absWorkingDir: root,
      entryPoints: ["test/inputs/list.ts", "test/inputs/measure.ts", "src/base/peer-inputs.ts"],
      entryNames: "[name]",
      outdir,
      outExtension: { ".js": ".mjs" },
      plugins: [inlineOnDemand],
      bundle: true,
      splitting: true,
      packages: "external",
      format: "esm",
      platform: "node",
      target: "node20.19",
      banner: {
        js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
      },
      logLevel: "error",
    });
    return await use(outdir);
  } finally {
    rmSync(outdir, { recursive: true, force: true });
  }
}

function printed(inputs) {
  const rows = [HEAD, ...inputs.map((input) => cells(input).map((cell) => cell.replaceAll("`", "")))];
  const widths = HEAD.map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]))
      .join("  ")
      .trimEnd(),
  );
}

function shapes(inputs, hostile) {
  const width = Math.max(...inputs.map(({ id }) => id.length));
  return inputs.map(({ id }) => `${id.padEnd(width)}  ${hostile[id]?.shapes.join(", ") ?? "-"}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [first, ...entries] = process.argv.slice(2);
  if (first === "--faults") process.exit(runFaults(entries));
  process.exitCode = await withBundle(async (folder) => {
    if (first === "--measure")
      return spawnSync(process.execPath, ["--expose-gc", join(folder, "measure.mjs"), ...entries], { stdio: "inherit" })
        .status;
    const load = (name) => import(pathToFileURL(join(folder, name)).href);
    const [{ PEER_INPUTS }, { HOSTILE_INPUTS }] = [await load("peer-inputs.mjs"), await load("list.mjs")];
    const inputs = PEER_INPUTS.filter((input) => first === undefined || input.peer === first);
    const lines = [...printed(inputs), "", "Hostile shapes:", ...shapes(inputs, HOSTILE_INPUTS)];
    process.stdout.write(`${lines.join("\n")}\n${inputs.length} inputs\n`);
    return 0;
  });
}
