/**
 * Which processes are children of another, from the system itself: what a leak test believes. Linux only.
 */
import { readdirSync, readFileSync } from "node:fs";

/** Living children of a process whose command line contains the text. */
export function childrenOf(pid: number, command: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((one) => {
      try {
        const stat = readFileSync(`/proc/${one}/stat`, "latin1");
        const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        return (
          Number(parent) === pid && state !== "Z" && readFileSync(`/proc/${one}/cmdline`, "latin1").includes(command)
        );
      } catch {
        return false;
      }
    });
}

export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3) !== "Z";
  } catch {
    return false;
  }
}
