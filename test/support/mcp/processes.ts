/**
 * Lists the child processes of a process, for leak tests. Linux only.
 */
import { readdirSync, readFileSync } from "node:fs";

/**
 * Living children of a process whose command line contains the text. The system's own list of children is quick, but may
 * leave some out while others end: that there are none is believed after a look at every process.
 */
export function childrenOf(pid: number, command: string): number[] {
  const listed = livingChildren(listedChildren(pid), pid, command);
  return listed.length > 0 ? listed : livingChildren(allProcesses(), pid, command);
}

function livingChildren(candidates: readonly number[], pid: number, command: string): number[] {
  return candidates.filter((one) => {
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

/** What each thread of the process started; nothing where the system has no such list. */
function listedChildren(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, "latin1").split(" ").filter(Boolean).map(Number),
    );
  } catch {
    return [];
  }
}

function allProcesses(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3) !== "Z";
  } catch {
    return false;
  }
}
