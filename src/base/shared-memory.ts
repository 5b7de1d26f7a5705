/**
 * Manages named memory that the threads of the process share. The main thread creates it, and the other threads
 * receive it with the configuration.
 */
import { type OwnedKey, type Owner, ownedKey } from "./owner.ts";

/** Names are keys with an owner. Policies and backends receive the memory of their owner, with plain names. */
export interface SharedMemory<Name extends string = OwnedKey> {
  /** The number is not 0, because 0 marks a free lock. */
  readonly thread: number;
  /**
   * Returns the buffer with this name. If `isNew` is true, the caller must initialize it before other threads use it.
   * Throws in a thread that did not receive it.
   */
  readonly claim: (name: Name, bytes: number) => { readonly buffer: SharedArrayBuffer; readonly isNew: boolean };
  /**
   * Registers a repair that runs after a thread crashed, because the thread may have held a lock. Only the main thread
   * runs repairs.
   */
  readonly onDeath: (name: Name, repair: (thread: number) => void) => void;
  /** Removes the buffer with this name and its repair callback. Only the main thread can remove them. */
  readonly release: (name: Name) => void;
}

/** The memory of one owner. */
export type OwnedMemory = SharedMemory<string>;

/** Returns memory of this size that the threads share, or of this thread alone. */
export type ClaimMemory = (bytes: number) => { readonly buffer: SharedArrayBuffer; readonly isNew: boolean };

export const claimAlone: ClaimMemory = (bytes) => ({ buffer: new SharedArrayBuffer(bytes), isNew: true });

/** Gives each owner its own names. */
export function ownedMemory(memory: SharedMemory, owner: Owner): OwnedMemory {
  return {
    thread: memory.thread,
    claim: (name, bytes) => memory.claim(ownedKey(owner, name), bytes),
    onDeath: (name, repair) => memory.onDeath(ownedKey(owner, name), repair),
    release: (name) => memory.release(ownedKey(owner, name)),
  };
}

export interface MainSharedMemory extends SharedMemory {
  all(): ReadonlyMap<string, SharedArrayBuffer>;
  died(thread: number): void;
}

export function createSharedMemory(thread: number): MainSharedMemory {
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
