/**
 * What a resolved `sync` promises while the journal is replaced, after a sync of the disk has failed, and when the disk
 * becomes full.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { Random } from "../../test/support/random.ts";
import { countSteps } from "../../test/support/step-count.ts";
import { WORKLOADS } from "../../test/support/store/slow-disk.ts";
import { silentLogger } from "../record/log/logger.ts";
import { openFolderStore } from "./folder-store.ts";
import { JournalFile } from "./journal.ts";
import type { Store } from "./store.ts";

/** A journal is replaced after more than 4 MiB. */
const LARGE = "x".repeat(1_000_000);

async function folderStore(t: TestContext): Promise<{ store: Store; folder: string }> {
  const folder = mkdtempSync(join(tmpdir(), "folder-store-"));
  const store = await openFolderStore(folder, { clock: fakeClock(), logger: silentLogger });
  t.after(async () => {
    t.mock.restoreAll();
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return { store, folder };
}

/** Overwrites one entry until the journal is much larger than the data. */
async function fillJournal(store: Store): Promise<void> {
  for (let i = 0; i < 6; i++) await store.set("budget/a", `${i}${LARGE}`);
}

test("while a journal is replaced, a sync waits until the old one is on disk", async (t) => {
  const { store } = await folderStore(t);
  const order: string[] = [];
  const { sync } = JournalFile.prototype;
  let letFirstEnd = (): void => undefined;
  const firstMayEnd = new Promise<void>((resolve) => {
    letFirstEnd = resolve;
  });
  const begun = new Promise<void>((resolve) => {
    t.mock.method(JournalFile.prototype, "sync", async function (this: JournalFile) {
      const isFirst = order.push("begins") === 1;
      resolve();
      if (isFirst) await firstMayEnd;
      await sync.call(this);
      order.push("ends");
    });
  });
  await fillJournal(store);
  await begun;
  await store.set("budget/b", "1");
  const synced = store.sync().then(() => order.push("resolved"));
  await store.set("budget/c", "1");
  const whileHeld = [...order];
  letFirstEnd();
  await synced;
  assert.deepEqual(whileHeld, ["begins"]);
  assert.deepEqual(order, ["begins", "ends", "begins", "ends", "resolved"]);
});

test("after a failed sync, a sync writes a snapshot instead of trusting the disk", async (t) => {
  const { store, folder } = await folderStore(t);
  await store.set("budget/a", "1");
  let failures = 1;
  const { sync } = JournalFile.prototype;
  t.mock.method(JournalFile.prototype, "sync", async function (this: JournalFile) {
    if (failures-- > 0) throw new Error("EIO: i/o error, fdatasync");
    await sync.call(this);
  });
  await assert.rejects(store.sync(), /EIO/);
  assert.deepEqual(snapshots(folder), []);
  await store.set("budget/b", "2");
  await store.sync();
  assert.deepEqual(snapshots(folder), ["snapshot.2"]);
  await store.close();
  const again = await openFolderStore(folder, { clock: fakeClock(), logger: silentLogger });
  assert.deepEqual([await again.get("budget/a"), await again.get("budget/b")], ["1", "2"]);
  await again.close();
});

test("the changes of one turn are written once per key, and all that resolved is read again", async (t) => {
  const { store, folder } = await folderStore(t);
  const random = new Random(38);
  const keys = ["budgets/a", "budgets/b", "sessions/c", "d"];
  let batches = 0;
  for (let turn = 0; turn < 40; turn++) {
    const changes: Promise<unknown>[] = [];
    for (let i = random.int(8); i >= 0; i--) {
      const key = random.pick(keys);
      if (key.startsWith("budgets/")) changes.push(store.add(key, random.int(5)));
      else if (random.oneIn(3)) changes.push(store.delete(key));
      else changes.push(store.set(key, `${turn} ${i} é`));
    }
    await Promise.all(changes);
    batches += 1;
  }
  const lines = readFileSync(join(folder, "journal.1"), "utf8").trim().split("\n");
  assert.ok(lines.length <= batches * keys.length, `${lines.length} lines`);
  const expected = await Promise.all(keys.map((key) => store.get(key)));
  await store.close();
  const again = await openFolderStore(folder, { clock: fakeClock(), logger: silentLogger });
  assert.deepEqual(await Promise.all(keys.map((key) => again.get(key))), expected);
  await again.close();
});

test("changes that could not be written are written later, with the last value of each key", async (t) => {
  const { store, folder } = await folderStore(t);
  const { append } = JournalFile.prototype;
  let failures = 1;
  t.mock.method(JournalFile.prototype, "append", async function (this: JournalFile, text: string) {
    if (failures-- > 0) throw new Error("ENOSPC: no space left on device");
    await append.call(this, text);
  });
  await assert.rejects(Promise.all([store.add("budgets/a", 1), store.add("budgets/b", 5), store.add("budgets/a", 2)]));
  await store.close();
  const again = await openFolderStore(folder, { clock: fakeClock(), logger: silentLogger });
  assert.deepEqual([await again.get("budgets/a"), await again.get("budgets/b")], ["3", "5"]);
  await again.close();
});

test("a sync that fails while a snapshot is written requires another snapshot", async (t) => {
  const { store, folder } = await folderStore(t);
  for (let i = 0; i < 20_000; i++) void store.set(`sessions/${i}`, "x".repeat(200));
  const { sync } = JournalFile.prototype;
  let old: JournalFile | undefined;
  let failures = 1;
  await new Promise<void>((resolve) => {
    t.mock.method(JournalFile.prototype, "sync", async function (this: JournalFile) {
      old ??= this;
      resolve();
      if (this === old || failures-- === 0) return sync.call(this);
      while (!readdirSync(folder).some((name) => name.startsWith("snapshot."))) await new Promise(setImmediate);
      throw new Error("EIO: i/o error, fdatasync");
    });
    void fillJournal(store);
  });
  await store.set("budget/b", "1");
  await assert.rejects(store.sync(), /EIO/);
  await store.sync();
  assert.deepEqual(snapshots(folder), ["snapshot.3"]);
});

test("the work for a change does not grow with the changes that wait for the disk", async () => {
  const sizes = [100, 200, 400];
  const steps = await countSteps(
    new URL("../../test/support/store/slow-disk.js", import.meta.url).href,
    WORKLOADS.flatMap((name) => sizes.map((n) => [name, n] as const)),
  );
  const growth = WORKLOADS.map((name, i) => {
    const [first = 0, second = 0, third = 0] = steps.slice(i * sizes.length, (i + 1) * sizes.length);
    assert.ok(second - first > 500, `${name}: ${second - first} steps`);
    return { name, growth: (third - second) / (second - first) };
  });
  assert.deepEqual(
    growth.filter((one) => one.growth > 2.3),
    [],
  );
});

test("a snapshot that does not fit on the disk is not used", {
  skip: process.platform === "win32" && "the limit of a file's size is one of POSIX",
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "folder-store-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const journal = new URL("./journal.js", import.meta.url).href;
  const script = `
    import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
    const { journalLine, writeSnapshot } = await import(${JSON.stringify(journal)});
    for (let chars = 3_900; chars < 4_100; chars++) {
      const folder = ${JSON.stringify(folder)} + "/" + chars;
      mkdirSync(folder);
      writeFileSync(folder + "/journal.1", "kept");
      const change = ["budget/a", "x".repeat(chars), 0];
      const fits = journalLine(change).length <= 4_096;
      const outcome = await writeSnapshot(folder, 2, [change]).then(() => "written", ({ code }) => code);
      const found = outcome + " " + readdirSync(folder).sort();
      if (found !== (fits ? "written snapshot.2" : "EFBIG journal.1,snapshot.new")) console.log(chars, found);
    }
    console.log("done");`;
  // Like a disk that becomes full, the limit cuts off the write that crosses it and rejects the next one.
  const limited = `trap "" XFSZ && ulimit -f 8 && exec "$0" --input-type=module -e "$1"`;
  const { stdout, stderr } = await promisify(execFile)("sh", ["-c", limited, process.execPath, script]);
  assert.equal(stdout, "done\n", stderr);
});

function snapshots(folder: string): string[] {
  return readdirSync(folder).filter((name) => name.startsWith("snapshot."));
}
