/**
 * Reads the open file limit of this process and derives the maximum number of client connections.
 */
import { closeSync, openSync, readFileSync } from "node:fs";
import { devNull } from "node:os";

const RESERVED = 64;

/** Returns undefined if the limit cannot be read, for example on systems other than Linux. */
export function openFilesLimit(read: () => string = processLimits): number | undefined {
  try {
    const found = /^Max open files\s+(\d+)/m.exec(read())?.[1];
    return found === undefined ? undefined : Number(found);
  } catch {
    return undefined;
  }
}

export function connectionsThatFit(openFiles: number | undefined, wanted: number): number {
  if (openFiles === undefined || openFiles >= 2 * wanted) return wanted;
  return Math.max(1, Math.floor((openFiles - RESERVED) / 2));
}

function processLimits(): string {
  return readFileSync("/proc/self/limits", "latin1");
}

const NEEDED_BY_START = 8;

/** Opens descriptors to check whether enough are free to start a child. Throws with `code` EMFILE or ENFILE if not. */
export function checkSpareDescriptors(open: () => number = openNothing, close: (fd: number) => void = closeSync): void {
  const opened: number[] = [];
  try {
    while (opened.length < NEEDED_BY_START) opened.push(open());
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EMFILE" || code === "ENFILE")
      throw Object.assign(new Error(`too many files are open (${code})`), { code });
  } finally {
    for (const descriptor of opened) close(descriptor);
  }
}

function openNothing(): number {
  return openSync(devNull, "r");
}
