/**
 * Ensures with a lock file that only one process writes to a folder. Another process takes over the lock if its owner
 * has exited, or if an owner in another process namespace stops updating the file. The owner must call `isHeld`
 * before it writes.
 */
import { randomUUID } from "node:crypto";
import { closeSync, openSync, readFileSync, readlinkSync, renameSync, rmSync, statSync, utimesSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { writeFully } from "../base/files.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { readJson } from "../json/read-json.ts";

const OWNER = peerInput("file/store-lock");

const FILE = "lock";
const TOUCH_EVERY_MS = 5_000;
/** Applies to owners in another process namespace, because their processes cannot be inspected. */
const STALE_AFTER_MS = 30_000;
const ATTEMPTS = 5;

export interface FolderLock {
  /** Returns false if the lock is lost or cannot be read. */
  isHeld(): boolean;
  release(): void;
}

interface Owner {
  readonly pid: number;
  readonly started: string;
  readonly place: string;
}

/** Throws an Error that names the owner if another process holds the lock. */
export function takeFolderLock(folder: string, clock: Clock): FolderLock {
  const file = join(folder, FILE);
  const owner: Owner = { pid: process.pid, started: processStartTime(process.pid) ?? "", place: processNamespace() };
  const text = JSON.stringify({ ...owner, id: randomUUID() });
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (create(file, text)) return hold(file, text, clock);
    const found = read(file);
    if (found === undefined) continue;
    const holder = parse(found);
    if (holder !== undefined && isAlive(holder, owner, file, clock.now()))
      throw new Error(
        `${folder} is in use by process ${holder.pid}${holder.place === owner.place ? "" : " on another machine or in another container"}`,
      );
    removeStale(file, found);
  }
  throw new Error(`${folder} is in use: several processes try to take it`);
}

/** Removes the lock that a thread of this process has left when it died. */
export function removeOwnLock(folder: string): void {
  const file = join(folder, FILE);
  const holder = parse(read(file) ?? "");
  const isOwn = holder?.pid === process.pid && holder.place === processNamespace();
  if (isOwn && holder.started === (processStartTime(process.pid) ?? "")) rmSync(file, { force: true });
}

function hold(file: string, text: string, clock: Clock): FolderLock {
  const isHeld = (): boolean => {
    try {
      return read(file) === text;
    } catch {
      return false;
    }
  };
  const touching = clock.every(TOUCH_EVERY_MS, () => {
    if (!isHeld()) return;
    const now = clock.now() / 1000;
    try {
      utimesSync(file, now, now);
    } catch {
      // If the disk rejects changes, the next write reports it.
    }
  });
  return {
    isHeld,
    release() {
      touching.cancel();
      try {
        if (isHeld()) rmSync(file, { force: true });
      } catch {
        // In a folder that became read-only, the lock remains. The next process takes it over.
      }
    },
  };
}

function create(file: string, text: string): boolean {
  let fd: number;
  try {
    fd = openSync(file, "wx", 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
  try {
    writeFully(fd, text);
    return true;
  } finally {
    closeSync(fd);
  }
}

/** Removes a stale lock. If another process has replaced the lock in the meantime, its lock is restored. */
function removeStale(file: string, staleText: string): void {
  const aside = `${file}.${randomUUID()}`;
  try {
    renameSync(file, aside);
    if (read(aside) === staleText) rmSync(aside, { force: true });
    else renameSync(aside, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function parse(text: string): Owner | undefined {
  try {
    const { pid, started, place } = readJson(OWNER, text) as Partial<Owner>;
    return typeof pid === "number" && typeof started === "string" && typeof place === "string"
      ? { pid, started, place }
      : undefined;
  } catch {
    return undefined;
  }
}

function isAlive(holder: Owner, own: Owner, file: string, nowMs: number): boolean {
  if (holder.place !== own.place) {
    const stat = statSync(file, { throwIfNoEntry: false });
    return stat !== undefined && nowMs - stat.mtimeMs < STALE_AFTER_MS;
  }
  // The start time distinguishes a process from a later one with the same id.
  const started = processStartTime(holder.pid);
  if (started !== undefined) return started === holder.started;
  if (process.platform === "linux") return false;
  try {
    process.kill(holder.pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/**
 * Returns the start time since boot in clock ticks, or undefined if the process does not exist, is a zombie (it has
 * ended and its parent has not waited for it), or the system has no `/proc`.
 */
function processStartTime(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The command name in parentheses may contain any character. The state is the first field after it, and the start
    // time is the 20th.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

/** Identifies the process namespace, because process ids are comparable only within it. */
function processNamespace(): string {
  try {
    return `${hostname()} ${readlinkSync("/proc/self/ns/pid")}`;
  } catch {
    return hostname();
  }
}
