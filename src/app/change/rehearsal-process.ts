/**
 * The process of rehearsals. Before it loads anything it lets those that serve go first, then it answers each message (two
 * configurations and the records) with what it found. It ends with the gateway that started it.
 */
import { setPriority } from "node:os";
import { cachedRehearse } from "./cached-code.ts";
import type { FromRehearsal, RehearsalData } from "./rehearsal-messages.ts";

/** Those that serve go first. A lower one (up to 19) would leave it nearly nothing on a machine that has no processor free. */
const PRIORITY = 5;
setPriority(PRIORITY);
// Refusals are errors that nobody looks for the place of.
Error.stackTraceLimit = 0;

process.on("disconnect", () => process.exit());
const rehearseBeside = cachedRehearse(import.meta.url) ?? (await import("./rehearse-beside.ts")).rehearseBeside;
// What came meanwhile waits for the listener.
process.on("message", (data: RehearsalData) => {
  void rehearseBeside(data).then(
    (found) => send({ found }),
    (error: Error) => send({ error: error.message }),
  );
});
send({ isReady: true });

function send(message: FromRehearsal): void {
  process.send?.(message);
}
