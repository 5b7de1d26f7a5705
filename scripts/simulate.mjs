/**
 * `npm run simulate -- [--hours N] [--seed S] [--jobs N] [--clients N] [--run-hours N]`: runs simulations with the seeds
 * S, S + 1, … until N hours are simulated, each in a process of its own. `--replay --seed S` prints the events of one run.
 */
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { root } from "./steps.mjs";

const { values: flags } = parseArgs({
  options: {
    hours: { type: "string", default: "24" },
    seed: { type: "string", default: "1" },
    jobs: { type: "string", default: "2" },
    clients: { type: "string", default: "100" },
    "run-hours": { type: "string", default: "6" },
    replay: { type: "boolean", default: false },
  },
});
const out = join(root, `build-simulation-${process.pid}`);
process.on("exit", () => rmSync(out, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(130));
await build({
  entryPoints: [join(root, "test/simulation/main.ts")],
  outdir: out,
  bundle: true,
  splitting: true,
  platform: "node",
  format: "esm",
  packages: "external",
  sourcemap: true,
  logLevel: "error",
});

const runHours = Number(flags["run-hours"]);
const runs = flags.replay ? 1 : Math.ceil(Number(flags.hours) / runHours);
let next = 0;
const total = { simulatedMs: 0, cpuMs: 0, requests: 0, broken: 0 };
await Promise.all(Array.from({ length: Math.min(runs, Number(flags.jobs)) }, worker));
if (!flags.replay) {
  const hours = total.simulatedMs / 3_600_000;
  const speed = total.simulatedMs / total.cpuMs;
  console.log(
    `${hours.toFixed(1)} hours, ${total.requests} requests, ${Math.round(speed)} times real time per CPU, ${total.broken} broken`,
  );
}
process.exitCode = total.broken > 0 ? 1 : 0;

async function worker() {
  while (next < runs) await simulate(Number(flags.seed) + next++);
}

function simulate(seed) {
  const args = ["--seed", String(seed), "--hours", String(runHours), "--clients", flags.clients];
  if (flags.replay) args.push("--replay");
  const child = spawn(process.execPath, ["--enable-source-maps", "--no-deprecation", join(out, "main.js"), ...args], {
    cwd: root,
    stdio: ["ignore", flags.replay ? "inherit" : "pipe", "inherit"],
  });
  let output = "";
  child.stdout?.on("data", (text) => {
    output += text;
  });
  return new Promise((resolve) =>
    child.on("close", (code) => {
      if (!flags.replay) report(seed, code, output);
      resolve();
    }),
  );
}

function report(seed, code, output) {
  const line = output.trim().split("\n").at(-1) ?? "";
  if (!line.startsWith("{")) {
    total.broken += 1;
    console.log(`seed ${seed}: exit ${code}\n${output}`);
    return;
  }
  const { digest, broken, simulatedMs, cpuMs, requests, statuses } = JSON.parse(line);
  total.simulatedMs += simulatedMs;
  total.cpuMs += cpuMs;
  total.requests += requests;
  console.log(
    `seed ${seed}  ${digest}  ${requests} requests ${JSON.stringify(statuses)}  ${Math.round(simulatedMs / cpuMs)} times`,
  );
  if (broken === undefined) return;
  total.broken += 1;
  console.log(`  BROKEN ${broken}\n  npm run simulate -- --replay --seed ${seed} --run-hours ${runHours}`);
}
