/**
 * The thread of rehearsals. Before it loads anything it lets those that serve go first, then it answers each message (two
 * configurations and the records) with what it found.
 */
import { constants, setPriority } from "node:os";
import { parentPort } from "node:worker_threads";
import { cachedRehearse } from "./cached-code.ts";
import type { RehearsalData } from "./rehearsals.ts";

if (parentPort !== null) {
  const port = parentPort;
  // On Linux this is the thread's own priority; elsewhere it would be that of the process. The lowest would leave it nearly
  // nothing on a machine that has no processor free.
  if (process.platform === "linux") setPriority(0, constants.priority.PRIORITY_BELOW_NORMAL);
  // Refusals are errors that nobody looks for the place of.
  Error.stackTraceLimit = 0;
  const rehearseBeside = cachedRehearse(import.meta.url) ?? (await import("./rehearse-beside.ts")).rehearseBeside;
  port.on("message", (data: RehearsalData) => {
    void rehearseBeside(data).then(
      (found) => port.postMessage(found),
      (error: unknown) => {
        // Ends the thread; the error reaches the one who waits.
        setImmediate(() => {
          throw error;
        });
      },
    );
  });
}
