/**
 * Starts the process of rehearsals. The variables that configurations name are in what it is sent; it needs no others.
 */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { isOneFile } from "../../lib/process/embedded-files.ts";
import { REHEARSAL_FLAGS } from "./rehearsal-flags.ts";
import type { RehearsalData } from "./rehearsal-messages.ts";

/** What a rehearsal needs of a child process. */
export type RehearsalProcess = Pick<ChildProcess, "on" | "off" | "kill" | "ref" | "unref"> & {
  readonly channel?: { ref(): void; unref(): void } | null | undefined;
  send(data: RehearsalData, sent: (error: Error | null) => void): boolean;
};

/** Throws if there can be none. */
export function startRehearsalProcess(): RehearsalProcess {
  if (isOneFile()) throw new Error("the single executable would start itself");
  return fork(fileURLToPath(new URL("./rehearsal-process.js", import.meta.url)), [], {
    execArgv: [...REHEARSAL_FLAGS],
    env: {},
    serialization: "advanced",
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  }) as RehearsalProcess;
}
