/**
 * `npm run simulate -- [--hours N] [--seed S] [--jobs N] [--clients N] [--run-hours N]`: runs simulations with the seeds
 * S, S + 1, … until N hours are simulated, each in a process of its own. `--replay --seed S` prints the events of one
 * run. A run that breaks an invariant is repeated with fewer clients, to print the shortest replay. `--mutate` runs each
 * fault of `test/simulation/mutations.mjs` with these seeds until it is found, for at most 15 minutes of CPU, and
 * `--faults 3,7` only some of them.
 */
import { spawn } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { bundle } from "../test/simulation/bundle.mjs";
import { MUTATIONS } from "../test/simulation/mutations.mjs";
import { root } from "./steps.mjs";

const flags = readFlags();
/** A fault that is not found within this time counts as not found. */
const MUTATION_CPU_MS = 15 * 60_000;
/** Each process runs several copies of the gateway's code, so most of it never gets to the optimizing compiler. */
const NODE_FLAGS = ["--no-deprecation", "--always-sparkplug", "--max-semi-space-size=64", "--min-semi-space-size=16"];
/** A run shows progress more often than this, also on a busy machine. */
const HANG_MS = 180_000;
const out = join(root, `build-simulation-${process.pid}`);
const running = new Set();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
  rmSync(out, { recursive: true, force: true });
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(130));

const runHours = flags["run-hours"];
const seeds = Array.from({ length: Math.ceil(flags.hours / runHours) }, (_, i) => flags.seed + i);
if (flags.replay) await replay();
else if (flags.mutate) await findMutations();
else await simulateAll();

function readFlags() {
  try {
    const { values } = parseArgs({
      options: {
        hours: { type: "string", default: "24" },
        seed: { type: "string", default: "1" },
        jobs: { type: "string", default: "2" },
        clients: { type: "string", default: "100" },
        "first-client": { type: "string", default: "0" },
        "run-hours": { type: "string", default: "12" },
        replay: { type: "boolean", default: false },
        mutate: { type: "boolean", default: false },
        faults: { type: "string" },
      },
    });
    const hours = (name) =>
      numberOf(name, values[name], (value) => value >= 0.01 && value <= 100_000, "a number from 0.01 to 100000");
    const integer = (name, least, most = 1_000_000_000) =>
      numberOf(name, values[name], isInteger(least, most), `an integer from ${least} to ${most}`);
    const clients = integer("clients", 1, 10_000);
    const faults = values.faults?.split(",").map((text) => {
      const most = MUTATIONS.length;
      return numberOf("faults", text, isInteger(1, most), `a list of integers from 1 to ${most}, such as 3,7`);
    });
    return {
      ...values,
      hours: hours("hours"),
      "run-hours": hours("run-hours"),
      seed: integer("seed", 0),
      jobs: integer("jobs", 1, 1_000),
      clients,
      "first-client": integer("first-client", 0, clients - 1),
      faults,
    };
  } catch (error) {
    console.error(error.message);
    process.exit(2);
  }
}

function isInteger(least, most) {
  return (value) => Number.isInteger(value) && value >= least && value <= most;
}

function numberOf(name, text, isValid, expected) {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (!isValid(value)) throw new Error(`--${name} must be ${expected}, not ${JSON.stringify(text)}`);
  return value;
}

async function simulateAll() {
  await bundle(out);
  const waiting = [...seeds];
  const results = [];
  await inParallel(async () => {
    for (let seed = waiting.shift(); seed !== undefined; seed = waiting.shift()) {
      const result = await simulate(out, seed);
      results.push(result);
      const { digest, requests, statuses, simulatedMs, cpuMs, broken } = result;
      const speed = Math.round(simulatedMs / cpuMs);
      console.log(`seed ${seed}  ${digest}  ${requests} requests ${JSON.stringify(statuses)}  ${speed} times`);
      if (broken === undefined) continue;
      console.log(`  BROKEN ${broken}`);
      console.log(`  ${replayCommand(seed, await fewestClients(seed, broken))}`);
    }
  });
  const sum = (field) => results.reduce((total, result) => total + result[field], 0);
  const broken = results.filter((result) => result.broken !== undefined).length;
  const speed = Math.round(sum("simulatedMs") / sum("cpuMs"));
  console.log(
    `${(sum("simulatedMs") / 3_600_000).toFixed(1)} hours, ${sum("requests")} requests, ${speed} times real time per CPU, ${broken} broken`,
  );
  process.exitCode = broken > 0 ? 1 : 0;
}

/** Halves the range of clients as long as the same invariant is broken. */
async function fewestClients(seed, broken) {
  const invariant = broken.split(":", 1)[0];
  let range = allClients();
  for (let isSmaller = true; isSmaller; ) {
    const [first, end] = range;
    const middle = Math.floor((first + end) / 2);
    isSmaller = false;
    if (middle === first) break;
    for (const half of [
      [first, middle],
      [middle, end],
    ]) {
      const result = await simulate(out, seed, half);
      if (result.broken?.split(":", 1)[0] !== invariant) continue;
      range = half;
      isSmaller = true;
      break;
    }
  }
  return range;
}

function allClients() {
  return [flags["first-client"], flags.clients];
}

/** A seed that also breaks an invariant without a fault finds none. */
async function findMutations() {
  const clean = join(out, "clean");
  await bundle(clean);
  const results = new Map();
  const passesWithoutFault = async (seed) => {
    if (!results.has(seed)) results.set(seed, simulate(clean, seed));
    return (await results.get(seed)).broken === undefined;
  };
  const chosen = flags.faults ?? MUTATIONS.map((_, index) => index + 1);
  const waiting = chosen.map((number) => [number - 1, MUTATIONS[number - 1]]);
  const count = waiting.length;
  let found = 0;
  await inParallel(async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [index, mutation] = next;
      const folder = join(out, String(index));
      await bundle(folder, mutation);
      let cpuMs = 0;
      let hit;
      for (const seed of seeds) {
        const result = await simulate(folder, seed);
        cpuMs += result.cpuMs;
        if (result.broken !== undefined && (await passesWithoutFault(seed))) hit = result;
        if (hit || cpuMs > MUTATION_CPU_MS) break;
      }
      if (hit) found += 1;
      const how = hit ? `seed ${hit.seed}: ${hit.broken.split("\n", 1)[0].slice(0, 120)}` : "not found";
      console.log(`${index + 1}. ${mutation.name}: ${how} (${Math.round(cpuMs / 1000)} s of CPU)`);
    }
  });
  console.log(`${found} of ${count} found`);
}

async function replay() {
  await bundle(out);
  NODE_FLAGS.push("--enable-source-maps");
  await run(out, ["--replay", ...argsOf(flags.seed, allClients())], "inherit");
}

function inParallel(worker) {
  return Promise.all(Array.from({ length: flags.jobs }, worker));
}

async function simulate(folder, seed, clients = allClients()) {
  const { code, output } = await run(folder, argsOf(seed, clients), "pipe");
  const line = output.trim().split("\n").at(-1) ?? "";
  if (line.startsWith("{")) return JSON.parse(line);
  return {
    seed,
    digest: "none",
    broken: `exit ${code} ${output}`,
    simulatedMs: 0,
    cpuMs: 0,
    requests: 0,
    statuses: {},
  };
}

function argsOf(seed, [first, end]) {
  return ["--seed", seed, "--hours", runHours, "--first-client", first, "--clients", end].map(String);
}

function replayCommand(seed, [first, end]) {
  const clients = `--first-client ${first} --clients ${end}`;
  return `npm run simulate -- --replay --seed ${seed} --run-hours ${runHours} ${clients}`;
}

function run(folder, args, stdout) {
  const child = spawn(process.execPath, [...NODE_FLAGS, join(folder, "main.js"), ...args], {
    cwd: root,
    stdio: ["ignore", stdout, "inherit"],
  });
  let output = "";
  child.stdout?.on("data", (text) => {
    output += text;
  });
  running.add(child);
  const hanging = setTimeout(() => {
    output = `the gateway hangs, after ${cpuSeconds(child.pid)} s of CPU`;
    child.kill("SIGKILL");
  }, HANG_MS);
  if (child.stdout) child.stdout.on("data", () => hanging.refresh());
  else clearTimeout(hanging);
  return new Promise((resolve) =>
    child.on("close", (code) => {
      clearTimeout(hanging);
      running.delete(child);
      resolve({ code, output });
    }),
  );
}

function cpuSeconds(pid) {
  const [user, system] = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/.*\) /s, "").split(" ").slice(11, 13);
  return Math.round((Number(user) + Number(system)) / 100);
}
