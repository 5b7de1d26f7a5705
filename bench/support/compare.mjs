/**
 * The measurement method: every program is warmed up, then measured in interleaved rounds, so that changes of the
 * machine affect all of them. The result is the median of CPU microseconds per request of the proxy's process.
 */
import { cpuMicros } from "./cpu.mjs";
import { withDeadline } from "./deadline.mjs";

/** Of the rounds, how many count as quiet. */
const QUIET = 0.2;
const LEAST_ROUNDS = 3;
const MAX_RUN_MS = 60_000;

/**
 * Rows that take longer than `maxMs` have fewer rounds, but at least LEAST_ROUNDS. With `maxMs`, a program that ends or
 * does not finish a run in time is missing in the row.
 */
export async function compare(options) {
  const { contestants, warmUp, rounds, perRound, run: load, baseline, title, cpu = cpuMicros, maxMs } = options;
  const startedMs = performance.now();
  const isLate = () => maxMs !== undefined && performance.now() - startedMs > maxMs;
  const missing = new Set();
  const run = async (contestant, count) => {
    const work = Promise.race([load(contestant, count), contestant.died ?? new Promise(() => undefined)]);
    if (maxMs === undefined) return work;
    return withDeadline(work, MAX_RUN_MS).catch((error) => {
      missing.add(contestant);
      console.log(`${contestant.name} is missing in "${title}": ${error.message}`);
    });
  };
  for (const contestant of contestants)
    await run(contestant, Math.ceil(warmUp * (contestant.program?.warmUpShare ?? 1)));
  const samples = new Map(contestants.map(({ name }) => [name, []]));
  const errors = new Map(contestants.map(({ name }) => [name, 0]));
  for (let round = 0; round < rounds && (round < LEAST_ROUNDS || !isLate()); round++) {
    for (const contestant of contestants.filter((one) => !missing.has(one))) {
      // A short run first: connections and caches are warm when the measured one begins.
      await run(contestant, Math.ceil(perRound / 10));
      if (missing.has(contestant)) continue;
      const before = cpu(contestant.pid);
      const failed = await run(contestant, perRound);
      if (missing.has(contestant)) continue;
      errors.set(contestant.name, errors.get(contestant.name) + failed);
      samples.get(contestant.name).push((cpu(contestant.pid) - before) / perRound);
    }
  }
  const compared = contestants.filter((one) => !missing.has(one));
  const baseSamples = compared.some(({ name }) => name === baseline) ? samples.get(baseline) : undefined;
  const rows = compared.map(({ name }) => {
    const all = samples.get(name);
    // Beside the baseline of the same round: what disturbed the machine for a while disturbed both.
    const ratios = baseSamples && all.map((micros, round) => micros / baseSamples[round]);
    const paired = ratios && { ratio: median(ratios), ...medianInterval(ratios) };
    const range = { least: Math.min(...all), most: Math.max(...all), quiet: quantile(all, QUIET) };
    return { name, micros: median(all), paired, ...range, errors: errors.get(name) };
  });
  const base = rows.find(({ name }) => name === baseline);
  printTable(title, rows, base);
  return { rows, base: base?.micros, errors: [...errors.values()].reduce((sum, one) => sum + one, 0) };
}

/** The row of a report: medians and failed requests by the program's name. */
export function rowOf(title, { rows }) {
  return {
    title,
    values: Object.fromEntries(rows.map(({ name, micros }) => [name, micros])),
    errors: Object.fromEntries(rows.filter(({ errors }) => errors > 0).map(({ name, errors }) => [name, errors])),
  };
}

/** Other work on the machine only adds to CPU time, so the ratio of the quiet rounds stands beside that of the medians. */
function printTable(title, rows, base) {
  console.log(`\n${title}`);
  const width = Math.max(...rows.map(({ name }) => name.length), 8);
  console.log(`  ${"".padEnd(width)}  CPU µs  min..max      × ${base?.name ?? "-"}  in pairs  95% interval  quiet`);
  for (const { name, micros, paired, quiet, least, most, errors } of rows) {
    const range = `${least.toFixed(0)}..${most.toFixed(0)}`;
    const ratios = base
      ? `${(micros / base.micros).toFixed(2).padEnd(base.name.length + 4)}${paired.ratio.toFixed(2).padEnd(10)}${intervalText(paired).padEnd(14)}${(quiet / base.quiet).toFixed(2)}`
      : "-";
    console.log(
      `  ${name.padEnd(width)}  ${micros.toFixed(1).padStart(6)}  ${range.padEnd(12)}  ${ratios}${errors > 0 ? `  ${errors} errors` : ""}`,
    );
  }
}

function intervalText({ low, high }) {
  return `${low.toFixed(2)}..${high.toFixed(2)}`;
}

/**
 * The 95% interval of the median, by order statistics: it makes no assumption about how disturbances are distributed.
 * With fewer than six values, no interval reaches 95%, so it is the whole range.
 */
export function medianInterval(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const below = Math.max(0, Math.floor((sorted.length - 1.96 * Math.sqrt(sorted.length)) / 2) - 1);
  return { low: sorted[below], high: sorted[sorted.length - 1 - below] };
}

export function median(values) {
  return quantile(values, 0.5);
}

/** Between two values, their mean by distance. */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const below = Math.floor(at);
  return sorted[below] + (sorted[Math.ceil(at)] - sorted[below]) * (at - below);
}
