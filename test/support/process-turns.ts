/**
 * Measures the longest event-loop iteration of a gateway in a separate process.
 */
import { createThreadCpu } from "./cpu-time.ts";
import type { GatewayProcess } from "./gateway-process.ts";

/** On the first signal it looks at every turn of the loop; on the second it tells the longest, in CPU time. */
const WATCH = `data:text/javascript,${encodeURIComponent(`
  import { openSync, readSync } from "node:fs";
  const cpuMs = (${createThreadCpu})(openSync, readSync);
  const now = () => ({ wall: performance.now(), cpu: cpuMs() });
  let running = false, longest = 0, rounds = 0, at = now();
  const turn = () => {
    const then = at;
    at = now();
    longest = Math.max(longest, Math.min(at.wall - then.wall, at.cpu - then.cpu));
    if (running) setImmediate(turn);
  };
  process.on("SIGWINCH", () => {
    running = !running;
    rounds += 1;
    if (running) { longest = 0; at = now(); setImmediate(turn); }
    process.stdout.write("round " + rounds + ": " + longest.toFixed(1) + " ms\\n");
  });`)}`;

/** For `startGatewayProcess`. */
export const WATCHED_TURNS = [`--import=${WATCH}`];

/** A machine whose host takes CPU time away stops a process for up to a second, several times in a minute. */
const ROUNDS = 30;

/**
 * The longest turn of the best round, in milliseconds; rounds end with the first below `limitMs`. Work that blocks does
 * so in each round; the compiler, the garbage collector and a busy machine do not.
 */
export async function longestTurnMs(
  watch: () => Promise<number>,
  limitMs: number,
  work: () => Promise<unknown>,
): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS && best >= limitMs; round++) {
    await watch();
    await work();
    best = Math.min(best, await watch());
  }
  return best;
}

/** Begins to watch, or ends it with the longest turn. */
export function turnsOf(gateway: GatewayProcess): () => Promise<number> {
  let round = 0;
  return async () => {
    round += 1;
    gateway.child.kill("SIGWINCH");
    const said = await gateway.logged(`round ${round}: `);
    return Number(new RegExp(`round ${round}: ([\\d.]+) ms`).exec(said)?.[1]);
  };
}
