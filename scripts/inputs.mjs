/**
 * `npm run inputs`: prints what peers can send, as listed in `src/base/peer-inputs.ts`, with the reader, limits, and
 * memory account of each input. `npm run inputs -- <peer>` prints only one peer. `inputsPage` writes the same as a page.
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { root } from "./steps.mjs";

const HEAD = ["Input", "Reader", "Bytes", "Items", "Depth", "Open", "Memory account"];

/** Returns the page with a table for each peer. */
export function inputsPage(inputs, note) {
  const lines = [
    "# Peer inputs",
    "",
    note,
    "",
    "Clients, servers, providers, services, stores, files, and other processes of the gateway are peers. Every message that the",
    "gateway reads from a peer has one entry in `src/base/peer-inputs.ts`, which names its reader, its limits, and the account that",
    "its memory is charged to. An empty cell means that the size bounds the value. `npm run inputs` prints the list.",
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

function cells({ id, reader, limits: { bytes, items, depth, open }, account }) {
  return [`\`${id}\``, reader, size(bytes), count(items), count(depth), count(open), account];
}

function size(limit) {
  if (typeof limit === "object") return `\`${limit.setting}\`, at most ${size(limit.ceiling)}`;
  if (limit < 1024) return `${limit} B`;
  return limit < 1024 * 1024 ? `${limit / 1024} KiB` : `${limit / 1024 / 1024} MiB`;
}

function count(limit) {
  return limit === undefined ? "" : limit.toLocaleString("en-US");
}

async function loadInputs() {
  const { outputFiles } = await build({
    entryPoints: [join(root, "src/base/peer-inputs.ts")],
    bundle: true,
    write: false,
    format: "esm",
  });
  return (await import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`)).PEER_INPUTS;
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

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [peer] = process.argv.slice(2);
  const inputs = (await loadInputs()).filter((input) => peer === undefined || input.peer === peer);
  process.stdout.write(`${printed(inputs).join("\n")}\n${inputs.length} inputs\n`);
}
