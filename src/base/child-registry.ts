/**
 * Registers child processes, so that they can be killed if their process or worker thread exits without stopping
 * them.
 */
const SLOTS = 4_096;

let list: Int32Array | undefined;
const own = new Set<number>();
let killsAtExit = false;

export function childRegistryBytes(): number {
  return SLOTS * Int32Array.BYTES_PER_ELEMENT;
}

/** Makes this thread register its later children in `memory`. */
export function listChildrenIn(memory: SharedArrayBuffer): void {
  list = new Int32Array(memory);
}

/** Returns a function that unregisters the child. If the registry is full, the child is not registered. */
export function listChild(pid: number): () => void {
  const listed = list;
  if (listed === undefined) return listOwn(pid);
  const at = listed.indexOf(0);
  if (at < 0) return () => undefined;
  Atomics.store(listed, at, pid);
  return () => void Atomics.store(listed, at, 0);
}

function listOwn(pid: number): () => void {
  own.add(pid);
  if (!killsAtExit) {
    killsAtExit = true;
    process.on("exit", () => own.forEach(killGroup));
  }
  return () => void own.delete(pid);
}

/** Kills all registered children and their process groups, and clears the registry. */
export function endListedChildren(memory: SharedArrayBuffer): number {
  let ended = 0;
  const listed = new Int32Array(memory);
  for (let at = 0; at < listed.length; at++) {
    const pid = Atomics.exchange(listed, at, 0);
    if (pid > 0 && killGroup(pid)) ended += 1;
  }
  return ended;
}

function killGroup(pid: number): boolean {
  try {
    return process.kill(process.platform === "win32" ? pid : -pid, "SIGKILL");
  } catch {
    // The process may have exited.
    return false;
  }
}
