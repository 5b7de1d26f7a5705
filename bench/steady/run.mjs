/**
 * `npm run bench -- steady`: sends chat requests at 70% of the highest rate for 30 minutes, and compares the latencies and
 * the resident memory of the last minutes with those of the first. STEADY_MINUTES changes the duration.
 */
import { gateways } from "../peers/programs.mjs";
import { median } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { cpuMicros, residentBytes } from "../support/cpu.mjs";
import { percentiles, sendClosedLoop, sendOpenLoop } from "../support/latency-load.mjs";
import { startBackend, WORKLOADS } from "../support/workloads.mjs";

const LOAD = 0.7;
const WARM_UP_MS = 20_000;
const MINUTE_MS = 60_000;
const COLUMNS = ["minute", "p50 ms", "p99 ms", "p99.9 ms", "errors", "MB", "CPU µs"];

export async function benchSteady({ quick = false } = {}) {
  const minutes = Number(process.env.STEADY_MINUTES ?? (quick ? 5 : 30));
  const { request } = WORKLOADS.find(({ of, request }) => of === "llm" && request !== undefined);
  const backend = await startBackend({ of: "llm", isStepped: false });
  const [program] = gateways();
  try {
    const values = { of: "llm", backendPort: backend.port };
    const configure = (_program, place) => program.configure(place);
    await withContestants({ programs: [program], values, configure }, async ([gateway]) => {
      if (gateway === undefined) throw new Error("the gateway did not start");
      const load = { port: gateway.port, request, connections: 32 };
      await sendClosedLoop({ ...load, durationMs: WARM_UP_MS });
      const perSecond = LOAD * (await sendClosedLoop({ ...load, durationMs: 5_000 })).perSecond;
      console.log(`\n${perSecond.toFixed()} chat requests per second`);
      printRow(COLUMNS);
      const rows = [];
      for (let minute = 1; minute <= minutes; minute++) {
        rows.push(await measureMinute(gateway, { ...load, perSecond }));
        const { p50, p99, p999, errors, mb, micros } = rows.at(-1);
        printRow([minute, ...[p50, p99, p999].map((ms) => ms.toFixed(2)), errors, mb.toFixed(), micros.toFixed(1)]);
      }
      const part = Math.max(1, Math.floor(minutes / 6));
      for (const [key, shown] of [
        ["p99", "p99, ms"],
        ["mb", "resident, MB"],
      ]) {
        const [first, last] = [rows.slice(0, part), rows.slice(-part)].map((some) =>
          median(some.map((row) => row[key])),
        );
        console.log(
          `${shown}: ${first.toFixed(2)} in the first ${part} minutes, ${last.toFixed(2)} in the last (${(last / first).toFixed(2)})`,
        );
      }
    });
  } finally {
    await backend.stop();
  }
}

async function measureMinute({ pid }, load) {
  const beforeMicros = cpuMicros(pid);
  const { latencies, errors } = await sendOpenLoop({ ...load, connections: 256, durationMs: MINUTE_MS });
  const micros = (cpuMicros(pid) - beforeMicros) / latencies.length;
  return { ...percentiles(latencies), errors, micros, mb: residentBytes(pid) / 2 ** 20 };
}

function printRow(cells) {
  console.log(cells.map((cell) => String(cell).padStart(10)).join(""));
}
