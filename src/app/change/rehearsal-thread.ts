/**
 * The thread of a rehearsal: started with the two configurations and the records, posts what it found, and ends.
 */
import { constants, setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import { systemClock } from "../../lib/process/clock.ts";
import { readSegments } from "../../pipeline/records/fact-ring.ts";
import type { RehearsalData } from "./rehearsals.ts";
import { rehearse } from "./rehearse.ts";

if (parentPort !== null) {
  const { input, segments } = workerData as RehearsalData;
  const port = parentPort;
  // On Linux this is the thread's own: those that serve go first. Elsewhere it would be the process's.
  if (process.platform === "linux") setPriority(0, constants.priority.PRIORITY_LOW);
  // Refusals are errors that nobody looks for the place of.
  Error.stackTraceLimit = 0;
  void rehearse(input, readSegments(segments), systemClock).then((found) => port.postMessage(found));
}
