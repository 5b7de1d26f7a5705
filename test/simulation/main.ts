/**
 * Runs one simulation in this process and prints its result as JSON: `node main.js --seed 7 --hours 1 --clients 100`.
 * Empty lines before it show progress.
 * With `--replay`, prints every event up to the first broken invariant.
 */
import fs from "node:fs";
import { parseArgs } from "node:util";
import { simulate } from "./scenario.ts";

// The simulation replaces these functions.
const { writeSync } = fs;
const { setImmediate: runLater } = globalThis;

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    hours: { type: "string", default: "1" },
    clients: { type: "string", default: "100" },
    "first-client": { type: "string", default: "0" },
    replay: { type: "boolean", default: false },
  },
});
const result = await simulate(
  {
    seed: Number(values.seed),
    hours: Number(values.hours),
    firstClient: Number(values["first-client"]),
    clients: Number(values.clients),
    progress: () => (values.replay ? 0 : writeSync(1, "\n")),
    timeline: values.replay ? (line) => writeSync(1, `${line}\n`) : undefined,
  },
  runLater,
);
const { user, system } = process.cpuUsage();
writeSync(1, `${JSON.stringify({ ...result, cpuMs: Math.round((user + system) / 1000) })}\n`);
process.exit(result.broken === undefined ? 0 : 1);
