/**
 * The method: every contestant is warmed up, then measured in interleaved rounds, so that drift of the machine
 * meets all alike; the figure is the median of CPU microseconds per request of the proxy's own process.
 */
import { cpuMicros } from "./cpu.mjs";

export async function compare({ contestants, warmUp, rounds, perRound, run, baseline, title }) {
  for (const contestant of contestants) await run(contestant, warmUp);
  const samples = new Map(contestants.map(({ name }) => [name, []]));
  let errors = 0;
  for (let round = 0; round < rounds; round++) {
    for (const contestant of contestants) {
      // A short run first: connections and caches are warm when the measured one begins.
      await run(contestant, Math.ceil(perRound / 10));
      const before = cpuMicros(contestant.pid);
      errors += await run(contestant, perRound);
      samples.get(contestant.name).push((cpuMicros(contestant.pid) - before) / perRound);
    }
  }
  const rows = contestants.map(({ name }) => ({ name, micros: median(samples.get(name)), all: samples.get(name) }));
  const base = rows.find(({ name }) => name === baseline)?.micros;
  printTable(title, rows, base, baseline, errors);
  return { rows, base, errors };
}

function printTable(title, rows, base, baseline, errors) {
  console.log(`\n${title}${errors > 0 ? ` (${errors} errors)` : ""}`);
  const width = Math.max(...rows.map(({ name }) => name.length), 8);
  console.log(`  ${"".padEnd(width)}  CPU µs  min..max      × ${baseline}`);
  for (const { name, micros, all } of rows) {
    const range = `${Math.min(...all).toFixed(0)}..${Math.max(...all).toFixed(0)}`;
    console.log(
      `  ${name.padEnd(width)}  ${micros.toFixed(1).padStart(6)}  ${range.padEnd(12)}  ${base ? (micros / base).toFixed(2) : "-"}`,
    );
  }
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
