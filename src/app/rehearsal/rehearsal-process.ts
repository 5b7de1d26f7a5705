/**
 * Entry point of the rehearsal process. It responds to each message with a report, and exits when the gateway
 * disconnects.
 */
import { keepAwake, systemClock } from "../../base/clock.ts";
import { readTraffic } from "../../pipeline/records/request-history.ts";
import type { FromRehearsal, RehearsalData } from "./rehearsals.ts";
import { createPause, type Rehearsal, rehearse } from "./rehearse.ts";

/** After this time, the event loop runs once, so that a disconnect is noticed. */
const WORK_MS = 50;

// Rejections are normal results of a rehearsal, and capturing their stacks would dominate the run time.
Error.stackTraceLimit = 0;

process.on("disconnect", () => process.exit());
process.on("message", (data: RehearsalData) => {
  void run(data).then(
    (found) => send({ found }),
    (error: Error) => send({ error: error.message }),
  );
});
send({ isReady: true });

function send(message: FromRehearsal): void {
  process.send?.(message);
}

async function run({ input, segments }: RehearsalData): Promise<Rehearsal> {
  const pause = createPause(systemClock, WORK_MS, () => new Promise((resolve) => setImmediate(resolve)));
  // The timers of policies are unreferenced and would not keep the process alive.
  const awake = keepAwake();
  try {
    return await rehearse(input, readTraffic(segments), systemClock, pause);
  } finally {
    awake.cancel();
  }
}
