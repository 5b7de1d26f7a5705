/**
 * What Linux knows about a process: open descriptors, resident memory, children. Zero for one that is gone.
 */
import { readdirSync, readFileSync } from "node:fs";

export function descriptors(pid) {
  return quietly(() => readdirSync(`/proc/${pid}/fd`).length, 0);
}

export function residentBytes(pid) {
  return quietly(() => Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]) * 4096, 0);
}

/** Living children, as process ids; zombies are no children any more. */
export function childrenOf(pid) {
  return processes().filter(({ parent, state }) => parent === pid && state !== "Z");
}

/** Every living process whose command line contains the mark, wherever it ended up after its parent died. */
export function processesMarked(mark) {
  return processes().filter(
    ({ pid, state }) => state !== "Z" && quietly(() => readFileSync(`/proc/${pid}/cmdline`, "utf8"), "").includes(mark),
  );
}

function processes() {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const stat = quietly(() => readFileSync(`/proc/${name}/stat`, "utf8"), "");
      // The name, in parentheses, may hold blanks and parentheses.
      const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      return stat === "" ? [] : [{ pid: Number(name), state, parent: Number(parent) }];
    });
}

function quietly(read, otherwise) {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
