/**
 * Divides the file descriptors of the process. Connections to servers and child processes leave a reserve for accepted
 * connections, and these leave one for files, so that running out of descriptors fails single calls.
 */
import { closeSync, openSync, readFileSync } from "node:fs";
import { devNull } from "node:os";

/** Used by the process itself, with the reserves. */
const BASE = 64;
/** Connections to servers and child processes do not use these. */
const RESERVED = 24;
/** Accepted connections do not use these. */
const RESERVED_FOR_FILES = 12;
/** Targets that have this many connections leave some of the others to targets with fewer. */
const MANY_CONNECTIONS = 16;
const LEFT_BY_MANY = 64;
/** The descriptors are counted again after this share of the free ones is used. */
const COUNTED_SHARE = 1 / 64;

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
  return Math.max(1, Math.floor((openFiles - BASE - 2 * leftByMany(openFiles)) / 2));
}

function processLimits(): string {
  return readFileSync("/proc/self/limits", "latin1");
}

function leftByMany(limit: number): number {
  return Math.min(LEFT_BY_MANY, Math.floor(limit / 16));
}

export interface DescriptorSystem {
  /** Opens any file. */
  open(): number;
  close(descriptor: number): void;
  limit(): number | undefined;
}

const SYSTEM: DescriptorSystem = {
  open: () => openSync(devNull, "r"),
  close: closeSync,
  limit: openFilesLimit,
};

/**
 * Decides whether descriptors are left. The system assigns the lowest free number, so the number of a new descriptor
 * shows how many are in use, in all threads.
 */
export class FileDescriptors {
  readonly #system: DescriptorSystem;
  /** How many may be opened before the next count, by targets with few and with many connections. */
  #uncounted = 0;
  #uncountedByMany = 0;
  #connecting = 0;
  #limit: number | undefined = undefined;
  #hasLimit = false;

  constructor(system: DescriptorSystem = SYSTEM) {
    this.#system = system;
  }

  /** Returns the error of a connection to a target that has `others` connections, or undefined if it may be opened. */
  connectionFault(others: number): Error | undefined {
    const isMany = others >= MANY_CONNECTIONS;
    if ((isMany ? this.#uncountedByMany : this.#uncounted) <= 0) {
      const fault = this.#count();
      if (fault !== undefined) return fault;
      if ((isMany ? this.#uncountedByMany : this.#uncounted) <= 0) return tooManyOpen("EMFILE");
    }
    this.#uncounted -= 1;
    this.#uncountedByMany -= 1;
    return undefined;
  }

  /** Counts a connection that may not have its descriptor yet. Call the result once when it has, or failed. */
  connecting(): () => void {
    this.#connecting += 1;
    return () => {
      this.#connecting -= 1;
    };
  }

  /** Returns false if the descriptor of an accepted connection is one that is reserved for files. */
  mayAccept(descriptor: number): boolean {
    const limit = this.#readLimit();
    return limit === undefined || descriptor < limit - RESERVED_FOR_FILES;
  }

  /** Throws with `code` EMFILE or ENFILE if a child process cannot be started. */
  checkChild(): void {
    const opened: number[] = [];
    const limit = this.#readLimit();
    try {
      while (opened.length < NEEDED_BY_START) {
        const descriptor = this.#system.open();
        opened.push(descriptor);
        if (limit !== undefined && descriptor >= limit - RESERVED) throw tooManyOpen("EMFILE");
      }
    } catch (error) {
      const code = shortageCode(error);
      if (code !== undefined) throw tooManyOpen(code);
    } finally {
      for (const descriptor of opened) this.#system.close(descriptor);
    }
  }

  #count(): Error | undefined {
    const limit = this.#readLimit();
    let inUse = 0;
    try {
      inUse = this.#system.open();
      this.#system.close(inUse);
    } catch (error) {
      const code = shortageCode(error);
      if (code !== undefined) return tooManyOpen(code);
    }
    const free = limit === undefined ? Number.POSITIVE_INFINITY : limit - RESERVED - inUse - this.#connecting;
    this.#uncounted = Math.ceil(free * COUNTED_SHARE);
    this.#uncountedByMany = Math.ceil((free - leftByMany(limit ?? 0)) * COUNTED_SHARE);
    return undefined;
  }

  #readLimit(): number | undefined {
    if (!this.#hasLimit) this.#limit = this.#system.limit();
    this.#hasLimit = true;
    return this.#limit;
  }
}

const NEEDED_BY_START = 8;

function tooManyOpen(code: string): Error {
  return Object.assign(new Error(`too many files are open (${code})`), { code });
}

/** Returns the code of an error that means that no descriptor is left in the process or in the system. */
export function shortageCode(error: unknown): "EMFILE" | "ENFILE" | undefined {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return code === "EMFILE" || code === "ENFILE" ? code : undefined;
}

/** The descriptors of this process. */
export const fileDescriptors = new FileDescriptors();
