/**
 * The program behind `npm run fuzz`: runs targets one after the other, or replays one file. Ends with 1 on a finding.
 */
import { readFileSync } from "node:fs";
import { basename, dirname, relative } from "node:path";
import { parseArgs } from "node:util";
import { corpusFolder, readCase, readFound, readSeeds, writeFound, writeSeeds } from "./corpus.ts";
import { errorOf, runTarget } from "./run.ts";
import type { Case, Target } from "./target.ts";
import { targets } from "./targets.ts";

const DEFAULT_MINUTES = 1;
const MAX_KEPT = 60;
const MAX_KEPT_BYTES = 1_500;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    minutes: { type: "string" },
    cases: { type: "string" },
    seed: { type: "string" },
    replay: { type: "string" },
    keep: { type: "boolean" },
  },
});

process.exitCode = values.replay === undefined ? await runAll() : await replay(values.replay);

async function runAll(): Promise<number> {
  const chosen = positionals.length === 0 ? targets : positionals.map(targetNamed);
  const seed = values.seed === undefined ? randomSeed() : Number(values.seed);
  const maxCases = values.cases === undefined ? Number.POSITIVE_INFINITY : Number(values.cases);
  const minutes = values.minutes ?? (values.cases === undefined ? String(DEFAULT_MINUTES) : undefined);
  let findings = 0;
  for (const target of chosen) findings += (await runOne(target, seed, maxCases, minutes)) ? 1 : 0;
  return findings === 0 ? 0 : 1;
}

async function runOne(target: Target, seed: number, maxCases: number, minutes: string | undefined): Promise<boolean> {
  const folder = corpusFolder(target.name);
  const began = performance.now();
  const cpu = process.cpuUsage();
  const endsAt = minutes === undefined ? Number.POSITIVE_INFINITY : began + Number(minutes) * 60_000;
  const seeds = readSeeds(folder);
  const report = await runTarget(target, {
    seed,
    maxCases,
    corpus: [...seeds, ...readFound(folder).map(({ input }) => input)],
    isOver: () => performance.now() > endsAt,
  });
  // By processor time: other work on the machine does not count.
  const { user, system } = process.cpuUsage(cpu);
  const rate = Math.round((report.cases * 1e6) / (user + system));
  console.log(
    `${target.name}: ${report.cases} cases, ${rate} per second of CPU, ${report.outcomes} outcomes, ${report.discoveries.length} new (seed ${seed})`,
  );
  if (values.keep === true) keep(folder, seeds, report.discoveries);
  if (report.finding === undefined) return false;
  const path = writeFound(folder, report.finding.input);
  console.error(`FINDING in ${target.name}: ${report.finding.message}`);
  console.error(`  ${readFileSync(path, "utf8").slice(0, 600).trimEnd()}`);
  console.error(`  again: npm run fuzz -- --replay ${relative(process.cwd(), path)}`);
  return true;
}

/** Small cases only: the corpus is read by every test run, and by people. */
function keep(folder: string, seeds: readonly Case[], discoveries: readonly Case[]): void {
  const small = discoveries.filter((one) => JSON.stringify(one).length <= MAX_KEPT_BYTES);
  const room = Math.max(0, MAX_KEPT - seeds.length);
  if (room > 0 && small.length > 0) writeSeeds(folder, [...seeds, ...small.slice(0, room)]);
}

async function replay(path: string): Promise<number> {
  const target = targetNamed(positionals[0] ?? basename(dirname(path)));
  const error = await errorOf(target, readCase(path));
  console.log(error === undefined ? `${target.name}: fine` : `${target.name}: ${(error as Error).stack}`);
  return error === undefined ? 0 : 1;
}

function targetNamed(name: string): Target {
  const found = targets.find((one) => one.name === name);
  if (found) return found;
  console.error(`no target ${name}; there are ${targets.map((one) => one.name).join(", ")}`);
  process.exit(2);
}

function randomSeed(): number {
  return Math.floor(performance.timeOrigin + performance.now()) >>> 0;
}
