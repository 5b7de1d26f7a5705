/**
 * How many files and sockets the system lets this process open, and how many connections fit into that. A gateway
 * that takes more clients than it can open backends for answers all of them with errors.
 */
import { readFileSync } from "node:fs";

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
