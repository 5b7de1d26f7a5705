/**
 * Compares programs on rows with several features at once: CPU microseconds per operation. Programs without a feature
 * have no value in its row.
 */
import { bareNodes, gateways, present } from "../peers/programs.mjs";
import { compare, rowOf } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { freePort, start } from "../support/process.mjs";
import { isWanted } from "../support/rows.mjs";
import { CHATS } from "./chat.mjs";
import { MCP_ACCESS } from "./mcp-access.mjs";
import { TRANSPORTS } from "./transports.mjs";

/** A report of 20 minutes has about 20 such rows. */
const MAX_ROW_MS = 35_000;

export async function benchWork({ quick = false, programs = [...present(), ...bareNodes(), ...gateways()] } = {}) {
  const rows = [];
  for (const scenario of [...MCP_ACCESS, ...CHATS, ...TRANSPORTS].filter(({ title }) => isWanted(title))) {
    try {
      rows.push(await compareScenario(scenario, programs, quick));
    } catch (error) {
      console.log(`${scenario.title} is missing: ${error.message}`);
    }
  }
  return rows;
}

async function compareScenario(scenario, programs, quick) {
  const { title, backends = {}, configure, prepare, run, notes, perRound, warmUp } = scenario;
  const started = await startBackends(backends);
  const selected = {
    programs,
    values: started.ports,
    configure: (program, place) => configure[program.kind ?? program.name]?.(place, program),
    prepare,
  };
  try {
    return await withContestants(selected, async (contestants) => {
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
      return { ...rowOf(title, result), ...(notes ? { notes: notes(contestants) } : {}) };
    });
  } finally {
    await started.stop();
  }
}

/** Starts the processes of a scenario; resolves with their ports by name. */
async function startBackends(backends) {
  const running = [];
  const ports = {};
  for (const [name, [script, ...args]] of Object.entries(backends)) {
    const port = await freePort();
    running.push(await start(process.execPath, [script, String(port), ...args], port));
    ports[name] = port;
  }
  return {
    ports,
    async stop() {
      for (const process of running) await process.stop();
    },
  };
}
