/**
 * Lets one random fault begin at each tick, and ends each after its time. A thing that has a fault already gets no
 * second one, because ending the first would end both.
 */
import { FAULTS } from "../faults/all-faults.mjs";
import { pause } from "./world.mjs";

export function startFaults(world, ledger, random, perSecond) {
  const possible = FAULTS.filter(({ needs }) => needs === undefined || world[needs] !== undefined);
  const inUse = new Set();
  const underWay = new Set();
  let isStopped = false;

  async function run(fault) {
    const entry = { ...fault, beganMs: Date.now(), endedMs: Number.POSITIVE_INFINITY };
    ledger.faults.push(entry);
    try {
      const begun = await fault.begin(world, random);
      if (begun?.broken) ledger.broken.push(`${fault.name}: ${begun.broken}`);
      await pause(random.between(...fault.forMs));
      await (typeof begun === "function" ? begun : begun?.end)?.();
    } catch (error) {
      ledger.broken.push(`${fault.name}: ${error.stack}`);
    }
    entry.endedMs = Date.now();
    inUse.delete(fault.uses);
  }

  const ticking = (async () => {
    while (!isStopped) {
      const free = possible.filter(({ uses }) => !inUse.has(uses));
      if (free.length > 0) {
        const fault = random.pick(free);
        inUse.add(fault.uses);
        const running = run(fault).finally(() => underWay.delete(running));
        underWay.add(running);
      }
      await pause(1_000 / perSecond);
    }
  })();

  return {
    /** Resolves when every fault is over. */
    async stop() {
      isStopped = true;
      await ticking;
      await Promise.all(underWay);
    },
  };
}
