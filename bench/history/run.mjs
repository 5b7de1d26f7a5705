/**
 * Measures the time of a usage report over a million rows of 30 days in the history.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { bundleOptions } from "../../scripts/bundle.mjs";
import { median } from "../support/compare.mjs";
import { freePort, start } from "../support/process.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const ROWS = 1_000_000;
const DAYS = 30;
const HOUR_MS = 3_600_000;

export async function benchHistory({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-history-"));
  try {
    await benchReport(folder, quick ? ROWS / 10 : ROWS);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function benchReport(folder, rows) {
  const target = join(folder, "report");
  const now = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  const { openSqliteEngine, migrate, writeRows, COLUMNS, systemClock } = await historyModules(folder);
  const engine = await openSqliteEngine(target, systemClock);
  await migrate(engine);
  let micros = 0;
  for (let at = 0; at < rows; at += 1000) {
    const batch = Array.from({ length: 1000 }, (_, i) => aRow(COLUMNS, at + i, rows, now));
    const before = process.cpuUsage();
    await writeRows(engine, batch);
    const { user, system } = process.cpuUsage(before);
    micros += user + system;
  }
  await engine.close();
  console.log(`\n${rows} rows of ${DAYS} days: ${(micros / rows).toFixed(1)} µs of CPU time per row written`);

  const [port, adminPort] = [await freePort(), await freePort()];
  const file = join(folder, "report.yaml");
  writeFileSync(
    file,
    `config: { adminAddr: "127.0.0.1:${adminPort}", history: { folder: "${target}", keepRows: 90d } }\ngateways: { default: { port: ${port} } }\n`,
  );
  const gateway = await start(process.execPath, [join(root, "dist/gateway.js"), "-f", file], adminPort);
  try {
    for (const by of ["team,model", "user", "day"]) {
      const times = [];
      for (let round = 0; round < 7; round++) {
        const began = performance.now();
        const response = await fetch(`http://127.0.0.1:${adminPort}/debug/usage?by=${by}&since=${DAYS + 1}d`);
        const { total } = await response.json();
        times.push(performance.now() - began);
        if (total.requests !== rows) throw new Error(`${total.requests} of ${rows} rows`);
      }
      console.log(
        `  /debug/usage?by=${by}: median ${median(times).toFixed(0)} ms, most ${Math.max(...times).toFixed(0)} ms`,
      );
    }
  } finally {
    await gateway.stop();
  }
}

/** The modules of the history are bundled for this run, because the program exports none of them. */
async function historyModules(folder) {
  const outfile = join(folder, "modules.mjs");
  const contents = ["sqlite-engine", "migrations", "writer", "history-row"]
    .map((name) => `export * from "./src/record/history/${name}.ts";`)
    .concat('export { systemClock } from "./src/base/clock.ts";')
    .join("\n");
  const stdin = { contents, resolveDir: root, loader: "ts" };
  const banner = { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' };
  await build({ ...bundleOptions, stdin, outfile, banner });
  return import(outfile);
}

function aRow(columns, index, rows, now) {
  const sums = { input_tokens: 120, output_tokens: 40, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0 };
  const row = {
    ...sums,
    id: `0123456789abcdef-${index.toString(36)}`,
    time: Math.floor(now - DAYS * 24 * HOUR_MS * (1 - index / rows)),
    duration_us: 1500,
    first_byte_us: 900,
    route: `route${index % 5}`,
    method: "POST",
    path: "/v1/chat/completions",
    request_id: (index * 2654435761).toString(16),
    client: "10.0.0.1",
    subject: `user${index % 40}`,
    team: `team${index % 10}`,
    model: `model${index % 4}`,
    provider: "openai",
    status: 200,
    response_end: "complete",
    result: "ok",
    cost_nano: 12_345,
    response_bytes: 400,
  };
  return columns.map((name) => row[name] ?? "");
}
