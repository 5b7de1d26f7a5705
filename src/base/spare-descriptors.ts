/**
 * Whether a process can be started now. Where descriptors run out in the middle of a start, Node forgets the pipes that
 * it has opened for it (`spawn` returns before it makes streams of them): they would stay open until the gateway ends.
 */
import { closeSync, openSync } from "node:fs";
import { devNull } from "node:os";

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
