/**
 * Memory that all threads of the process use, by name. The main thread makes it while it checks a configuration; the other
 * threads get the whole list with the configuration and find theirs in it. A process with one thread has none of this.
 */
export interface SharedMemory {
  /** The number of this thread, never 0: what it locks is marked with it. */
  readonly thread: number;
  /** The memory of this name; `isNew`: whoever asked must fill it before others use it. Throws in a thread that lacks it. */
  claim(name: string, bytes: number): { readonly buffer: SharedArrayBuffer; readonly isNew: boolean };
  /** What is to be done if a thread died: it may have held a lock. Only the main thread asks for that. */
  onDeath(name: string, repair: (thread: number) => void): void;
  /** Nobody needs it any more. */
  release(name: string): void;
}

export interface OwnedSharedMemory extends SharedMemory {
  /** All of it, for the other threads. */
  all(): ReadonlyMap<string, SharedArrayBuffer>;
  /** A thread died: locks that it held are opened. */
  died(thread: number): void;
}

/** For the main thread. */
export function createSharedMemory(thread: number): OwnedSharedMemory {
  const buffers = new Map<string, SharedArrayBuffer>();
  const repairs = new Map<string, (thread: number) => void>();
  return {
    thread,
    claim(name, bytes) {
      const known = buffers.get(name);
      if (known) return { buffer: known, isNew: false };
      const buffer = new SharedArrayBuffer(bytes);
      buffers.set(name, buffer);
      return { buffer, isNew: true };
    },
    onDeath: (name, repair) => void repairs.set(name, repair),
    release(name) {
      buffers.delete(name);
      repairs.delete(name);
    },
    all: () => new Map(buffers),
    died(dead) {
      for (const repair of repairs.values()) repair(dead);
    },
  };
}

/** For the other threads: what the main thread made for the configuration that is being prepared. */
export function givenSharedMemory(thread: number, given: () => ReadonlyMap<string, SharedArrayBuffer>): SharedMemory {
  return {
    thread,
    claim(name) {
      const buffer = given().get(name);
      if (buffer === undefined) throw new Error(`shared memory is missing: ${name.slice(0, 100)}`);
      return { buffer, isNew: false };
    },
    onDeath: () => undefined,
    release: () => undefined,
  };
}
