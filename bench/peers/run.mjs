/**
 * Compares the gateway with other proxies in interleaved rounds: CPU microseconds per operation. BENCH_NODES selects
 * other Node.js versions for the gateway, separated by colons, and BENCH_ROWS selects rows by the first words of
 * their titles.
 */
import { openSession } from "../mcp/calls.mjs";
import { compare, rowOf } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { GROUPS, startBackend, workloadsOf } from "../support/workloads.mjs";
import { bareNodes, gateways, other, present } from "./programs.mjs";

/** A report of 20 minutes has about 20 such rows. */
const MAX_ROW_MS = 35_000;

export async function benchPeers({
  quick = false,
  programs = [...present(), ...other(), ...bareNodes(), ...gateways()],
} = {}) {
  const rows = [];
  for (const group of GROUPS) {
    const workloads = workloadsOf(group);
    if (workloads.length === 0) continue;
    try {
      rows.push(...(await comparePrograms(group, programs, workloads, quick)));
    } catch (error) {
      console.log(`rows are missing: ${error.message}`);
    }
  }
  printSummary(
    programs.map(({ name }) => name),
    rows,
  );
  return rows;
}

/** Returns one row per workload: its title, the medians by program, and the failed requests by program. */
async function comparePrograms(group, programs, workloads, quick) {
  const { of } = group;
  const backend = await startBackend(group);
  const selected = {
    programs: programs.filter(({ serves }) => serves.includes(of)),
    values: { of, backendPort: backend.port },
    configure: (program, place) => program.configure(place),
    async prepare(contestant) {
      if (of === "mcp") contestant.sessions = [await openSession(contestant.port)];
    },
  };
  try {
    return await withContestants(selected, async (contestants) => {
      const rows = [];
      for (const { title, run, perRound, warmUp } of workloads) {
        const result = await compare({
          title,
          contestants,
          warmUp: quick ? Math.ceil(warmUp / 4) : warmUp,
          rounds: quick ? 3 : 7,
          maxMs: MAX_ROW_MS,
          perRound,
          run,
          baseline: contestants[0]?.name,
        });
        rows.push(rowOf(title, result));
      }
      return rows;
    });
  } finally {
    await backend.stop();
  }
}

/** In the form that documentation takes. */
function printSummary(names, rows) {
  console.log("\nCPU µs per operation (medians)\n");
  console.log(`| Work | ${names.join(" | ")} |`);
  console.log(`|---|${names.map(() => "---|").join("")}`);
  for (const { title, values } of rows)
    console.log(`| ${title} | ${names.map((name) => values[name]?.toFixed(0) ?? "-").join(" | ")} |`);
}
