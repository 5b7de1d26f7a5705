/**
 * How many files and sockets the system lets this process open, and how many connections fit into that. A gateway
 * that takes more clients than it can open backends for answers all of them with errors.
 */
import { closeSync, openSync, readFileSync } from "node:fs";
import { devNull } from "node:os";

/** Files, listeners, child processes' pipes, the admin interface. */
const RESERVED = 64;

/** Node has already raised the soft limit to the hard one. Undefined where the system does not say (not Linux). */
export function openFilesLimit(read: () => string = processLimits): number | undefined {
  try {
    const found = /^Max open files\s+(\d+)/m.exec(read())?.[1];
    return found === undefined ? undefined : Number(found);
  } catch {
    return undefined;
  }
}

/** Each connection of a client may need one to a backend. */
export function connectionsThatFit(openFiles: number | undefined, wanted: number): number {
  if (openFiles === undefined || openFiles >= 2 * wanted) return wanted;
  return Math.max(1, Math.floor((openFiles - RESERVED) / 2));
}

function processLimits(): string {
  return readFileSync("/proc/self/limits", "latin1");
}

/** Two for each of three pipes, and two by which the child tells that its program could not be run. */
const NEEDED_BY_START = 8;

/** Throws with `code` EMFILE or ENFILE unless there are enough for a start. It opens some, because only that tells. */
export function checkSpareDescriptors(open: () => number = openNothing, close: (fd: number) => void = closeSync): void {
  const opened: number[] = [];
  try {
    while (opened.length < NEEDED_BY_START) opened.push(open());
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // Anything else, such as a system without this file, says nothing of descriptors.
    if (code === "EMFILE" || code === "ENFILE")
      throw Object.assign(new Error(`too many files are open (${code})`), { code });
  } finally {
    for (const descriptor of opened) close(descriptor);
  }
}

function openNothing(): number {
  return openSync(devNull, "r");
}
