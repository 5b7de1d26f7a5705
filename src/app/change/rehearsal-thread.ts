/**
 * The thread of a rehearsal: started with the two configurations and the records, posts what it found, and ends.
 */
import { constants, setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import { keepAwake, systemClock } from "../../lib/process/clock.ts";
import { trafficIn } from "../../pipeline/records/fact-ring.ts";
import { createPause } from "./pause.ts";
import type { RehearsalData } from "./rehearsals.ts";
import { rehearse } from "./rehearse.ts";

/** Where a thread has no priority of its own, those that serve get the processor this often. */
const WORK_MS = 5;
const REST_MS = 1;

if (parentPort !== null) {
  const { input, segments } = workerData as RehearsalData;
  const port = parentPort;
  // On Linux this is the thread's own: those that serve go first. Elsewhere it would be the process's.
  if (process.platform === "linux") setPriority(0, constants.priority.PRIORITY_LOW);
  // Refusals are errors that nobody looks for the place of.
  Error.stackTraceLimit = 0;
  const pause = createPause(systemClock, WORK_MS, () => new Promise((resolve) => systemClock.after(REST_MS, resolve)));
  // A rest alone would not keep the thread.
  const awake = keepAwake();
  void rehearse(input, trafficIn(segments), systemClock, pause)
    .then((found) => port.postMessage(found))
    .finally(() => awake.cancel());
}
