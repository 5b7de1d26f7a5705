/**
 * `npm run bench -- report [--quick] [--out=folder] [--docs] [--from=report.json]`: measures the gateway next to other
 * programs and writes the report as JSON, Markdown, and HTML to the folder (`bench-report` by default). `--docs` also
 * writes the benchmark page of the documentation and the table in the README. `--from` renders the data of an
 * earlier run. BENCH_ROWS selects rows by the first words of their titles, and absent programs have no column.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { bareNodes, gateways, PROGRAMS, present } from "../peers/programs.mjs";
import { benchPeers } from "../peers/run.mjs";
import { benchStreams } from "../streams/run.mjs";
import { benchTail } from "../tail/run.mjs";
import { benchWork } from "../work/run.mjs";
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
    text: "CPU time of the proxy process per operation, the median of interleaved rounds. nginx, haproxy, and Envoy forward chat requests as plain HTTP; agentgateway and the gateway parse them and count tokens. Bare Node copies bytes between sockets.",
    measure: benchPeers,
  },
  {
    id: "work",
    title: "CPU time with several features",
    unit: "µs",
    decimals: 0,
    text: "CPU time of the proxy process per operation, as above. agentgateway has no history and no budgets, so its chat row has a token limit instead. Bare Node is a minimal program for the row, without authentication, rules, or limits.",
    measure: benchWork,
  },
  {
    id: "tail",
    title: "Latency",
    unit: "ms",
    decimals: 2,
    text: "The highest rate is that of 32 connections in a closed loop, which is also the 100% load. At lower loads, requests are sent at a fixed rate, and slow responses do not delay later requests. Values are medians of interleaved rounds.",
    measure: benchTail,
  },
  {
    id: "streams",
    title: "Streams and idle connections",
    decimals: 1,
    text: "Each stream sends one event per second. Memory is the growth of the resident memory of the proxy process. The time to the first byte is that of new streams while the others are open.",
    measure: benchStreams,
  },
];

export async function benchReport({ quick = false } = {}) {
  const option = (name) => process.argv.find((text) => text.startsWith(`--${name}=`))?.slice(name.length + 3);
  const folder = resolve(option("out") ?? "bench-report");
  const from = option("from");
  const data = from === undefined ? await measure(quick, folder) : JSON.parse(readFileSync(from, "utf8"));
  save(folder, data);
  console.log(`\nwrote report.json, report.md, and report.html to ${folder}`);
  if (!process.argv.includes("--docs")) return;
  publish(root, data);
  console.log("wrote docs/benchmarks.json, docs/benchmarks.md, and the table in README.md");
}

function save(folder, data) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "report.json"), `${JSON.stringify(data, null, 1)}\n`);
  writeFileSync(join(folder, "report.md"), renderMarkdown(data));
  writeFileSync(join(folder, "report.html"), renderHtml(data));
}

/** Saves the data after each section, so that an interrupted run leaves a report of what it has measured. */
async function measure(quick, folder) {
  const startedMs = performance.now();
  const programs = [...present(), ...bareNodes(), ...gateways()];
  const names = programs.map(({ name }) => name);
  const data = {
    date: new Date().toISOString().slice(0, 10),
    minutes: 0,
    command: commandLine(quick),
    isQuick: quick,
    machine: describeMachine(),
    programs: programs.map(({ name, release, build }) => ({ name, release, ...(build ? { build } : {}) })),
    absent: PROGRAMS.map(({ name }) => name).filter((name) => !names.includes(name)),
    sections: [],
  };
  for (const { measure: measureRows, ...section } of SECTIONS) {
    console.log(`\n── ${section.title} (${minutesSince(startedMs)} min)`);
    try {
      const rows = await measureRows({ quick, programs });
      const columns = names.filter((name) => isUsed(rows, name));
      if (rows.length > 0) data.sections.push({ ...section, columns, rows });
    } catch (error) {
      console.log(`${section.title}: missing because of ${error.stack}`);
      data.sections.push({ ...section, columns: [], rows: [], failure: error.message });
    }
    data.minutes = Number(minutesSince(startedMs));
    save(folder, data);
  }
  return data;
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
