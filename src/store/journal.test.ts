/**
 * What is read from the files of a store after a power failure at every byte, on a disk that becomes full at every byte,
 * with every byte damaged, and in a folder without write access.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { JournalFile, journalLine, type Recovered, readJournal, recover, writeSnapshot } from "./journal.ts";
import type { Change } from "./store.ts";

const CHANGES: readonly Change[] = [
  ["budgets/a", "1", 0],
  ["sessions/é😀", "a\nb", 5_000],
  ["budgets/a"],
  ["budgets/b", '{"spent":2}', 0],
];
const LATER: readonly Change[] = [
  ["budgets/b", "3", 0],
  ["budgets/c", "é", 0],
];
const bytesOf = (changes: readonly Change[]): Buffer => Buffer.from(changes.map(journalLine).join(""));

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "journal-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Returns the changes that are read from a folder with only these files. */
function readFrom(folder: string, files: Readonly<Record<string, Buffer>>): Recovered & { changes: Change[] } {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
  return readAgain(folder);
}

function readAgain(folder: string): Recovered & { changes: Change[] } {
  const changes: Change[] = [];
  return { ...recover(folder, (change) => changes.push(change)), changes };
}

/** Returns the changes whose text is in the first bytes of their journal, also without the end of the line. */
function wholeChanges(changes: readonly Change[], bytes: number): readonly Change[] {
  return changes.filter((_, i) => bytesOf(changes.slice(0, i + 1)).length - 1 <= bytes);
}

function tableOf(changes: readonly Change[]): Record<string, string> {
  const table = new Map<string, string>();
  for (const [key, value] of changes) {
    if (value === undefined) table.delete(key);
    else table.set(key, value);
  }
  return Object.fromEntries([...table].sort());
}

test("a power failure at any byte of a journal costs only the last record, and the next append is read", async (t) => {
  const folder = folderFor(t);
  const bytes = bytesOf(CHANGES);
  const added: Change = ["added", "1", 0];
  for (let kept = 0; kept <= bytes.length; kept++) {
    const found = readFrom(folder, { "journal.1": bytes.subarray(0, kept) });
    const expected = wholeChanges(CHANGES, kept);
    const isTorn = kept > 0 && bytes[kept - 1] !== 0x0a;
    assert.deepEqual(found, { number: 1, damaged: 0, isTorn, changes: expected }, `${kept} bytes`);
    const journal = await JournalFile.open(folder, found.number, found.isTorn);
    await journal.append(journalLine(added));
    await journal.close();
    assert.deepEqual(readAgain(folder).changes, [...expected, added], `${kept} bytes and an append`);
  }
});

test("a power failure at any byte while a journal is replaced loses nothing that was flushed", async (t) => {
  const folder = folderFor(t);
  await writeSnapshot(
    folder,
    2,
    Object.entries(tableOf(CHANGES)).map(([key, value]) => [key, value, 0]),
  );
  const snapshot = readFileSync(join(folder, "snapshot.2"));
  const before = bytesOf(CHANGES);
  const after = bytesOf(LATER);
  for (let written = 0; written <= after.length; written++) {
    const next = { "journal.2": after.subarray(0, written) };
    const expected = tableOf([...CHANGES, ...wholeChanges(LATER, written)]);
    const states = {
      "before the snapshot": { "journal.1": before, ...next },
      "after it was renamed": { "journal.1": before, "snapshot.2": snapshot, ...next },
      "after the old journal was removed": { "snapshot.2": snapshot, ...next },
    };
    for (const [name, files] of Object.entries(states)) {
      const { number, changes } = readFrom(folder, files);
      assert.deepEqual([number, tableOf(changes)], [2, expected], `${name}, ${written} bytes of the new journal`);
    }
  }
  for (let written = 0; written <= snapshot.length; written++) {
    const files = { "journal.1": before, "journal.2": after, "snapshot.new": snapshot.subarray(0, written) };
    const { number, changes } = readFrom(folder, files);
    assert.deepEqual(
      [number, tableOf(changes)],
      [2, tableOf([...CHANGES, ...LATER])],
      `${written} bytes of a snapshot`,
    );
    await writeSnapshot(folder, 3, changes);
    assert.deepEqual(readdirSync(folder), ["snapshot.3"]);
    assert.deepEqual(readAgain(folder).changes, changes);
  }
});

test("any damaged byte costs only the records that it belongs to, and is reported", () => {
  const bytes = bytesOf(CHANGES);
  const ends = CHANGES.map((_, i) => bytesOf(CHANGES.slice(0, i + 1)).length);
  for (let at = 0; at < bytes.length; at++)
    for (const damaged of [(bytes[at] as number) ^ 1, 0x00, 0x0a, 0xff]) {
      if (damaged === bytes[at]) continue;
      const copy = Buffer.from(bytes);
      copy[at] = damaged;
      const found: Change[] = [];
      const read = readJournal(copy, (change) => found.push(change));
      const touched = ends.findIndex((end) => at < end);
      // Without the end of its line, a record is joined with the next one.
      const lost = at + 1 === ends[touched] ? [touched, touched + 1] : [touched];
      const expected = CHANGES.filter((_, i) => !lost.includes(i));
      assert.deepEqual(found, expected, `byte ${at} is ${damaged}`);
      assert.ok(read.damaged > 0 || read.isTorn, `byte ${at} is ${damaged}`);
    }
});

test("a disk that becomes full at any byte of an append takes nothing from the other records", {
  skip: process.platform === "win32" && "the limit of a file's size is one of POSIX",
}, async (t) => {
  const folder = folderFor(t);
  const change: Change = ["budgets/a", "é", 0];
  const bytes = bytesOf([change]).length;
  const fillers = Array.from({ length: bytes }, (_, free): Change => {
    const rest = 4_096 - free - bytesOf([["f", "", 0]]).length;
    return ["f", "x".repeat(rest), 0];
  });
  const script = `
    import { mkdirSync } from "node:fs";
    const { JournalFile, journalLine } = await import(${JSON.stringify(new URL("./journal.js", import.meta.url).href)});
    const [folder, fillers, change] = JSON.parse(process.argv[1]);
    for (const [free, filler] of fillers.entries()) {
      mkdirSync(folder + "/" + free);
      const journal = await JournalFile.open(folder + "/" + free, 1, false);
      await journal.append(journalLine(filler));
      for (let i = 0; i < 2; i++)
        console.log(free, await journal.append(journalLine(change)).then(() => "written", ({ code }) => code));
      await journal.close();
    }`;
  // Like a disk that becomes full, the limit cuts off the write that crosses it and rejects the next one.
  const limited = `trap "" XFSZ && ulimit -f 8 && exec "$0" --input-type=module -e "$1" "$2"`;
  const input = JSON.stringify([folder, fillers, change]);
  const { stdout } = await promisify(execFile)("sh", ["-c", limited, process.execPath, script, input]);
  assert.equal(stdout, fillers.map((_, free) => `${free} EFBIG\n`.repeat(2)).join(""));
  for (const [free, filler] of fillers.entries()) {
    const path = join(folder, String(free));
    const { changes, number, damaged, isTorn } = readAgain(path);
    // The record is whole if only the end of its line did not fit.
    const whole: readonly Change[] = free === bytes - 1 ? [filler, change] : [filler];
    assert.deepEqual([changes, damaged, isTorn], [whole, 0, free > 0], `${free} bytes free`);
    const journal = await JournalFile.open(path, number, isTorn);
    await journal.append(journalLine(change));
    await journal.close();
    assert.deepEqual(tableOf(readAgain(path).changes), tableOf([filler, change]), `${free} bytes free`);
  }
});

test("a folder without write access stops the start, and one that loses it later keeps all changes", {
  skip: process.platform === "win32" && "permissions are those of POSIX",
}, async (t) => {
  const program = fileURLToPath(new URL("../../test/support/store/read-only-folder.js", import.meta.url));
  const folder = folderFor(t);
  const run = async (mode: string): Promise<string> =>
    (await promisify(execFile)(process.execPath, [program, folder, mode])).stdout;
  assert.match(await run("run"), /^EACCES: permission denied, open '\S+journal.2'\njournal.1 lock\nup\n$/);
  assert.match(await run("start"), /^EACCES: permission denied, .+\n\[ '1', '2', '3' \]\n$/);
});
