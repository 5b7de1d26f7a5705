/**
 * `npm run inputs -- --measure [entry…]`: measures the readers with hostile inputs in this process, prints a table, and
 * exits with 1 if the CPU time grows faster than the bytes, or if a piece of work keeps the main thread for too long.
 */
import { PEER_INPUTS, type PeerInput } from "../../src/base/peer-inputs.ts";
import { cpuMs } from "../support/cpu-time.ts";
import { outcomeOf } from "./count-work.ts";
import { type Hostile, MAX_MEASURED_BYTES } from "./hostile.ts";
import { HOSTILE_INPUTS } from "./list.ts";
import { beginTurns, longestTurnMs } from "./turns.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const RUNS = 5;
const MIN_CPU_MS = 20;
const MAX_GROWTH = 2.3;
const MAX_TURN_MS = 50;
/** For parsed values, and garbage that was not collected yet. */
const MAX_MEMORY_FACTOR = 64;
const FREE_MEMORY_BYTES = 16 * MIB;
const PIECE_BYTES = 64 * KIB;

interface Run {
  readonly cpuMs: number;
  readonly turnMs: number;
  readonly memoryBytes: number;
}

interface Row {
  readonly input: string;
  readonly shape: string;
  readonly bytes: number;
  readonly run: Run;
  readonly growth: number | undefined;
  readonly faults: readonly string[];
}

const chosen = process.argv.slice(2);
const rows: Row[] = [];
const measured = new Set<Hostile>();
for (const input of PEER_INPUTS) {
  const hostile = (HOSTILE_INPUTS as Readonly<Record<string, Hostile>>)[input.id];
  if (hostile === undefined || (chosen.length > 0 && !chosen.some((part) => input.id.startsWith(part)))) continue;
  if (measured.has(hostile)) continue;
  measured.add(hostile);
  rows.push(await measure(input, hostile));
  const { shape, bytes, run, growth, faults } = rows.at(-1) as Row;
  const cells = [
    input.id.padEnd(36),
    shape.padEnd(34),
    size(bytes).padStart(9),
    `${run.cpuMs.toFixed(1)} ms`.padStart(10),
    (growth === undefined ? "-" : growth.toFixed(2)).padStart(6),
    `${run.turnMs.toFixed(1)} ms`.padStart(10),
    size(run.memoryBytes).padStart(10),
    `  ${input.account}`,
  ];
  process.stdout.write(`${cells.join(" ")}${faults.length > 0 ? `  FAULT: ${faults.join(", ")}` : ""}\n`);
}
const faulty = rows.filter(({ faults }) => faults.length > 0);
process.stdout.write(`${rows.length} readers measured, ${faulty.length} beyond the limits\n`);
process.exitCode = faulty.length > 0 ? 1 : 0;

/** Looks for the shape with the longest piece of work at the largest size, and measures the growth of this shape. */
async function measure({ id, maxBytes }: PeerInput, hostile: Hostile): Promise<Row> {
  const bytes = Math.min(maxBytes, MAX_MEASURED_BYTES);
  let worst = { shape: "", run: { cpuMs: 0, turnMs: -1, memoryBytes: 0 } as Run };
  for (const shape of hostile.shapes) {
    const first = await best(hostile, shape, bytes, 1);
    // A first run compiles code and collects the garbage of others.
    const run = first.turnMs > MAX_TURN_MS / 2 ? await best(hostile, shape, bytes, RUNS) : first;
    if (run.turnMs > worst.run.turnMs) worst = { shape, run };
  }
  const { shape, run } = worst;
  let n = Math.ceil(bytes / 64);
  while (4 * n < bytes && (await best(hostile, shape, n, 1)).cpuMs < MIN_CPU_MS) n *= 2;
  const times: number[] = [];
  for (const factor of [1, 2, 4]) times.push((await best(hostile, shape, factor * n, RUNS)).cpuMs);
  const [first = 0, second = 0, third = 0] = times;
  const growth = first < MIN_CPU_MS ? undefined : Math.sqrt(third / first);
  const isQuadratic = growth !== undefined && growth > MAX_GROWTH && third / second > MAX_GROWTH;
  return {
    input: id,
    shape,
    bytes,
    run,
    growth,
    faults: [
      ...(isQuadratic ? [`grows by ${growth.toFixed(2)} for each doubling`] : []),
      ...(run.turnMs > MAX_TURN_MS ? [`one piece of work takes ${run.turnMs.toFixed(0)} ms`] : []),
      ...(run.memoryBytes > MAX_MEMORY_FACTOR * bytes + FREE_MEMORY_BYTES ? [`takes ${size(run.memoryBytes)}`] : []),
    ],
  };
}

async function best(hostile: Hostile, shape: string, bytes: number, runs: number): Promise<Run> {
  let found: Run | undefined;
  for (let i = 0; i < runs; i++) {
    const action = hostile.prepare(shape, bytes, PIECE_BYTES);
    globalThis.gc?.();
    const before = memory();
    const startMs = cpuMs();
    beginTurns();
    await outcomeOf(action);
    const turnMs = longestTurnMs();
    const run = { cpuMs: cpuMs() - startMs, turnMs, memoryBytes: Math.max(0, memory() - before) };
    if (found === undefined || run.turnMs < found.turnMs) found = run;
  }
  return found as Run;
}

function memory(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

function size(bytes: number): string {
  return bytes < MIB ? `${Math.round(bytes / KIB)} KiB` : `${(bytes / MIB).toFixed(1)} MiB`;
}
