/**
 * A rehearsal on a thread beside those that serve: it rests, so that they find a processor free.
 */
import { availableParallelism } from "node:os";
import { keepAwake, systemClock } from "../../lib/process/clock.ts";
import { trafficIn } from "../../pipeline/records/fact-ring.ts";
import { createShare } from "./pause.ts";
import type { RehearsalData } from "./rehearsals.ts";
import { type Rehearsal, rehearse } from "./rehearse.ts";

/** Of the processors of the machine, for all threads of the process. */
const SHARE = 0.5;

export async function rehearseBeside({ input, segments }: RehearsalData): Promise<Rehearsal> {
  const asleep = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const meter = {
    monotonicMs: () => systemClock.monotonicMs(),
    cpuMs() {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1_000;
    },
    rest: (ms: number) => void Atomics.wait(asleep, 0, 0, ms),
  };
  // A policy that waits would not keep the thread.
  const awake = keepAwake();
  try {
    return await rehearse(input, trafficIn(segments), systemClock, createShare(meter, availableParallelism() * SHARE));
  } finally {
    awake.cancel();
  }
}
