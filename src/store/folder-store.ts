/**
 * Implements a store in a local folder. It keeps all data in memory and writes each change to a journal. Resolved
 * changes survive `kill -9`, and changes before a resolved `sync` survive a power failure.
 */
import { mkdirSync } from "node:fs";
import type { Clock, Timer } from "../base/clock.ts";
import type { Logger } from "../record/log/logger.ts";
import { takeFolderLock } from "./folder-lock.ts";
import { JournalFile, journalLine, recover, syncFolder, writeSnapshot } from "./journal.ts";
import { type Change, type Store, StoreUnavailable } from "./store.ts";
import { Table, type TableLimits } from "./table.ts";

const SYNC_AFTER_MS = 1_000;
const RETRY_AFTER_MS = 1_000;
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
const COMPACT_FROM_BYTES = 4 * 1024 * 1024;
const COMPACT_FROM_TIMES = 2;
const LOST_FOLDER = "another process took the folder over";

export interface FolderStoreEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limits?: TableLimits | undefined;
}

export async function openFolderStore(folder: string, { clock, logger, limits }: FolderStoreEnv): Promise<Store> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const lock = takeFolderLock(folder, clock);
  /** Only the last change of a key is written, because each line of the journal sets its key. */
  let waiting = new Map<string, Change>();
  let waitingBytes = 0;
  let writing: Promise<void> | undefined;
  let isUnsynced = false;
  /** Set after a failed sync: the system may have dropped changes, so the next sync would succeed without them. */
  let needsSnapshot = false;
  let failedSyncs = 0;
  let syncs: Promise<void> = Promise.resolve();
  let syncing: Timer | undefined;
  let retrying: Timer | undefined;
  let problem: string | undefined;
  let compacting: Promise<void> | undefined;
  let isClosed = false;
  let usefulBytes = 0;

  const record = (change: Change): void => {
    if (isClosed) throw new StoreUnavailable("it is closed");
    if (problem !== undefined && waitingBytes > 0) throw new StoreUnavailable(problem);
    if (waitingBytes > MAX_WAITING_BYTES) throw new StoreUnavailable("the disk is too slow");
    const [key] = change;
    const before = waiting.get(key);
    waiting.set(key, change);
    waitingBytes += lineBytes(change) - (before === undefined ? 0 : lineBytes(before));
    void write();
  };
  const table = new Table(clock, record, limits);

  let journal: JournalFile;
  let number: number;
  try {
    let leftOut = 0;
    const recovered = recover(folder, (change) => {
      if (!table.load(change)) leftOut += 1;
    });
    if (leftOut > 0)
      logger.warn("the store is larger than its memory limit: entries were left out", { folder, leftOut });
    number = Math.max(1, recovered.number);
    for (const change of table.changes()) usefulBytes += lineBytes(change);
    if (recovered.damaged > 0) logger.error("damaged records were left out", { folder, count: recovered.damaged });
    if (recovered.isTorn) logger.warn("the last record was incomplete and was left out", { folder });
    journal = await JournalFile.open(folder, number, recovered.isTorn);
    await syncFolder(folder);
  } catch (error) {
    table.close();
    lock.release();
    throw error;
  }

  /** Runs one write at a time. Changes that arrive during a write are appended after it. */
  function write(): Promise<void> {
    writing ??= writeAll().finally(() => {
      writing = undefined;
    });
    return writing;
  }

  async function writeAll(): Promise<void> {
    // Batches all changes of this event-loop iteration.
    await new Promise((resolve) => setImmediate(resolve));
    while (waiting.size > 0) {
      const batch = waiting;
      waiting = new Map();
      try {
        if (!lock.isHeld()) throw new Error(LOST_FOLDER);
        await journal.append(journalText(batch));
        waitingBytes = bytesOf(waiting);
        isUnsynced = true;
        recovered();
      } catch (error) {
        waiting = new Map([...batch, ...waiting]);
        waitingBytes = bytesOf(waiting);
        failed(error);
        return;
      }
    }
    if (isUnsynced) syncing ??= clock.after(SYNC_AFTER_MS, () => void quietly(syncNow()));
    if (!isClosed && journal.bytes > Math.max(COMPACT_FROM_BYTES, COMPACT_FROM_TIMES * usefulBytes))
      void compact().catch(failed);
  }

  async function syncNow(): Promise<void> {
    syncing?.cancel();
    syncing = undefined;
    await write();
    if (waiting.size > 0) throw new StoreUnavailable(problem ?? "it could not be written");
    if (!isUnsynced) return;
    isUnsynced = false;
    try {
      while (needsSnapshot) await compact();
      await syncFile(journal);
    } catch (error) {
      isUnsynced = true;
      failed(error);
      throw new StoreUnavailable((error as Error).message);
    }
  }

  /** Syncs one file after the other, because only one of two syncs at the same time reports that changes were dropped. */
  function syncFile(file: JournalFile): Promise<void> {
    syncs = syncs
      .catch(() => undefined)
      .then(async () => {
        if (needsSnapshot) throw new Error("an earlier sync failed");
        try {
          await file.sync();
        } catch (error) {
          needsSnapshot = true;
          failedSyncs += 1;
          throw error;
        }
      });
    return syncs;
  }

  function compact(): Promise<void> {
    compacting ??= replaceJournal().finally(() => {
      compacting = undefined;
    });
    return compacting;
  }

  async function replaceJournal(): Promise<void> {
    const next = await JournalFile.open(folder, number + 1, false);
    try {
      await syncFolder(folder);
    } catch (error) {
      await quietly(next.close());
      throw error;
    }
    while (writing !== undefined) await writing;
    const before = journal;
    journal = next;
    number += 1;
    await quietly(syncFile(before));
    await before.close();
    // The new owner would read this snapshot instead of its own records.
    if (!lock.isHeld()) throw new Error(LOST_FOLDER);
    const failedBefore = failedSyncs;
    usefulBytes = await writeSnapshot(folder, number, table.changes());
    // The snapshot may lack changes whose sync failed while it was written.
    if (failedSyncs === failedBefore) needsSnapshot = false;
  }

  /** Resolves when the operating system has the change, so that `kill -9` does not lose it. */
  async function written<Result>(change: () => Result): Promise<Result> {
    const result = change();
    if (waiting.size > 0) await write();
    // The change is in memory, and is written once the disk accepts it.
    if (waiting.size > 0) throw new StoreUnavailable(problem ?? "it could not be written", { isUncertain: true });
    return result;
  }

  function failed(error: unknown): void {
    const reason = (error as Error).message;
    if (problem === undefined) logger.error("cannot write", { folder, reason });
    problem = reason;
    retrying ??= clock.after(RETRY_AFTER_MS, () => {
      retrying = undefined;
      void write();
    });
  }

  function recovered(): void {
    if (problem !== undefined) logger.info("can write again", { folder });
    problem = undefined;
  }

  async function closeNow(): Promise<void> {
    if (isClosed) return;
    await quietly(syncNow());
    isClosed = true;
    table.close();
    for (const timer of [syncing, retrying]) timer?.cancel();
    await writing;
    if (compacting !== undefined) await quietly(compacting);
    await quietly(journal.close());
    lock.release();
  }

  return {
    kind: "folder",
    get: async (key) => table.get(key),
    set: (key, value, options) => written(() => table.set(key, value, options?.expiresAtMs)),
    delete: (key) => written(() => table.delete(key)),
    replace: (key, expected, value, options) =>
      written(() => table.replace(key, expected, value, options?.expiresAtMs)),
    add: (key, amount, options) => written(() => table.add(key, amount, options)),
    list: async (prefix, cursor) => table.list(prefix, cursor),
    sync: syncNow,
    health: () => (problem === undefined ? { state: "up" } : { state: "degraded", reason: problem }),
    close: closeNow,
    get bytes() {
      return table.bytes;
    },
    dropCache: () => table.dropCache(),
  };
}

function journalText(changes: ReadonlyMap<string, Change>): string {
  let text = "";
  for (const change of changes.values()) text += journalLine(change);
  return text;
}

function bytesOf(changes: ReadonlyMap<string, Change>): number {
  let bytes = 0;
  for (const change of changes.values()) bytes += lineBytes(change);
  return bytes;
}

/** The size is approximate, because escapes and characters beyond ASCII are not counted. */
function lineBytes([key, value = ""]: Change): number {
  return key.length + value.length + 32;
}

async function quietly(work: Promise<unknown>): Promise<void> {
  await work.catch(() => undefined);
}
