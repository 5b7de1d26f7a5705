/**
 * A rehearsal in a process of its own: it looks around now and then, whether the gateway that asked is still there.
 */
import { keepAwake, systemClock } from "../../lib/process/clock.ts";
import { trafficIn } from "../../pipeline/records/fact-ring.ts";
import { createPause } from "./pause.ts";
import type { RehearsalData } from "./rehearsal-messages.ts";
import { type Rehearsal, rehearse } from "./rehearse.ts";

const WORK_MS = 50;

export async function rehearseBeside({ input, segments }: RehearsalData): Promise<Rehearsal> {
  const pause = createPause(systemClock, WORK_MS, () => new Promise((resolve) => setImmediate(resolve)));
  // A policy that waits would not keep the process.
  const awake = keepAwake();
  try {
    return await rehearse(input, trafficIn(segments), systemClock, pause);
  } finally {
    awake.cancel();
  }
}
