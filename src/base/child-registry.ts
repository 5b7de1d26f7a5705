/**
 * The child processes of one thread, in memory that the main thread reads too: a thread that dies cannot end them itself.
 * In a process with one thread there is no such list.
 */
const SLOTS = 4_096;

let list: Int32Array | undefined;

export function childRegistryBytes(): number {
  return SLOTS * Int32Array.BYTES_PER_ELEMENT;
}

/** From now on the children of this thread are listed there. */
export function listChildrenIn(memory: SharedArrayBuffer): void {
  list = new Int32Array(memory);
}

/** Returns what takes it out again. A child for which there is no room is not listed. */
export function listChild(pid: number): () => void {
  const at = list?.indexOf(0) ?? -1;
  if (list === undefined || at < 0) return () => undefined;
  const listed = list;
  Atomics.store(listed, at, pid);
  return () => void Atomics.store(listed, at, 0);
}

/** Ends all that are listed, with everything that they started; the list is empty then. */
export function endListedChildren(memory: SharedArrayBuffer): number {
  let ended = 0;
  const listed = new Int32Array(memory);
  for (let at = 0; at < listed.length; at++) {
    const pid = Atomics.exchange(listed, at, 0);
    if (pid <= 0) continue;
    try {
      process.kill(-pid, "SIGKILL");
      ended += 1;
    } catch {
      // It has ended already.
    }
  }
  return ended;
}
