/**
 * `npm run bench -- report [--quick] [--out=folder] [--docs] [--from=report.json]`: measures the gateway next to other
 * programs and writes the report as JSON, Markdown, and HTML to the folder (`bench-report` by default). `--docs` also
 * writes the benchmark page of the documentation and the table in the README. `--from` renders the data of an
 * earlier run. BENCH_ROWS selects rows by the first words of their titles, and absent programs have no column.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gateways, PROGRAMS, present } from "../peers/programs.mjs";
import { benchPeers } from "../peers/run.mjs";
import { renderHtml } from "./html.mjs";
import { describeMachine } from "./machine.mjs";
import { renderMarkdown } from "./markdown.mjs";
import { publish } from "./publish.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

/** Each section has columns that are programs (the default) or its own. `measure` returns the rows. */
const SECTIONS = [
  {
    id: "cpu",
    title: "CPU time per operation",
    unit: "µs",
    decimals: 0,
    text: "CPU time of the proxy process per operation, the median of interleaved rounds. nginx, haproxy, and Envoy forward chat requests as plain HTTP; agentgateway and the gateway parse them and count tokens.",
    measure: benchPeers,
  },
];

export async function benchReport({ quick = false } = {}) {
  const option = (name) => process.argv.find((text) => text.startsWith(`--${name}=`))?.slice(name.length + 3);
  const from = option("from");
  const data = from === undefined ? await measure(quick) : JSON.parse(readFileSync(from, "utf8"));
  const folder = resolve(option("out") ?? "bench-report");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "report.json"), `${JSON.stringify(data, null, 1)}\n`);
  writeFileSync(join(folder, "report.md"), renderMarkdown(data));
  writeFileSync(join(folder, "report.html"), renderHtml(data));
  console.log(`\nwrote report.json, report.md, and report.html to ${folder}`);
  if (!process.argv.includes("--docs")) return;
  publish(root, data);
  console.log("wrote docs/benchmarks.json, docs/benchmarks.md, and the table in README.md");
}

async function measure(quick) {
  const startedMs = performance.now();
  const machine = describeMachine();
  const programs = [...present(), ...gateways()];
  const names = programs.map(({ name }) => name);
  const sections = [];
  for (const { measure: measureRows, ...section } of SECTIONS) {
    console.log(`\n── ${section.title} (${minutesSince(startedMs)} min)`);
    try {
      const rows = await measureRows({ quick, programs });
      if (rows.length > 0) sections.push({ ...section, columns: names.filter((name) => isUsed(rows, name)), rows });
    } catch (error) {
      console.log(`${section.title}: missing because of ${error.stack}`);
      sections.push({ ...section, columns: [], rows: [], failure: error.message });
    }
  }
  return {
    date: new Date().toISOString().slice(0, 10),
    minutes: Number(minutesSince(startedMs)),
    command: commandLine(quick),
    isQuick: quick,
    machine,
    programs: programs.map(({ name, release, build }) => ({ name, release, ...(build ? { build } : {}) })),
    absent: PROGRAMS.map(({ name }) => name).filter((name) => !names.includes(name)),
    sections,
  };
}

function isUsed(rows, name) {
  return rows.some(({ values }) => values[name] !== undefined);
}

function commandLine(quick) {
  const rows = process.env.BENCH_ROWS;
  return `${rows === undefined ? "" : `BENCH_ROWS="${rows}" `}npm run bench -- report${quick ? " --quick" : ""}`;
}

function minutesSince(startedMs) {
  return ((performance.now() - startedMs) / 60_000).toFixed(1);
}
