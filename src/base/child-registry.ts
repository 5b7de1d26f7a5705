/**
 * Registers the child processes of a thread in shared memory, so that the main thread can kill them if the thread
 * crashes. A process with a single thread has no registry.
 */
const SLOTS = 4_096;

let list: Int32Array | undefined;

export function childRegistryBytes(): number {
  return SLOTS * Int32Array.BYTES_PER_ELEMENT;
}

/** Makes this thread register its later children in `memory`. */
export function listChildrenIn(memory: SharedArrayBuffer): void {
  list = new Int32Array(memory);
}

/** Returns a function that unregisters the child. If the registry is full, the child is not registered. */
export function listChild(pid: number): () => void {
  const at = list?.indexOf(0) ?? -1;
  if (list === undefined || at < 0) return () => undefined;
  const listed = list;
  Atomics.store(listed, at, pid);
  return () => void Atomics.store(listed, at, 0);
}

/** Kills all registered children and their process groups, and clears the registry. */
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
      // The process has already exited.
    }
  }
  return ended;
}
