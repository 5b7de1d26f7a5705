/**
 * Runs as the entry point of the rehearsal process. It responds to each message with a report or an error, and exits
 * when the gateway disconnects.
 */
import { keepAwake, systemClock } from "../../base/clock.ts";
import type { FromRehearsal } from "./rehearsals.ts";
import { createPause } from "./rehearse.ts";
import { type Job, runJob } from "./run-job.ts";

/** After this time, the event loop runs once, so that a disconnect is noticed. */
const WORK_MS = 50;

// Rejections are normal results of a rehearsal, so their stacks are not captured.
Error.stackTraceLimit = 0;

process.on("disconnect", () => process.exit());
process.on("message", (job: Job) => {
  void run(job).then(
    (found) => send({ found }),
    (error: Error) => send({ error: error.message }),
  );
});
send({ isReady: true });

function send(message: FromRehearsal): void {
  process.send?.(message);
}

async function run(job: Job): ReturnType<typeof runJob> {
  const pause = createPause(systemClock, WORK_MS, () => new Promise((resolve) => setImmediate(resolve)));
  // The timers of policies are unreferenced and would not keep the process alive.
  const awake = keepAwake();
  try {
    return await runJob(job, systemClock, pause);
  } finally {
    awake.cancel();
  }
}
