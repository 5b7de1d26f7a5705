import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { COLUMN_INDEX, COLUMNS, IS_NUMBER, parseRows } from "./history-row.ts";
import { Spool } from "./spool.ts";

function aSpool(t: TestContext, { folder = newFolder(t), maxBytes = 1_000_000, isReplacement = false } = {}) {
  let dropped = 0;
  const options = {
    folder,
    maxBytes,
    isReplacement,
    clock: fakeClock(),
    dropped: (rows: number) => {
      dropped += rows;
    },
  };
  const spool = new Spool(options);
  t.after(() => spool.close());
  return { spool, folder, dropped: () => dropped };
}

function newFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "spool-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("rows are read in order and removed with their file", (t) => {
  const { spool, folder } = aSpool(t);
  spool.append("a\nb");
  spool.append("c");
  const oldest = spool.oldest();
  assert.deepEqual(oldest?.batches, ["a\nb", "c"]);
  spool.append("d");
  oldest?.remove();
  assert.deepEqual(spool.oldest()?.batches, ["d"]);
  spool.oldest()?.remove();
  assert.ok(spool.isEmpty);
  assert.equal(spool.bytes, 0);
  spool.close();
  assert.deepEqual(readdirSync(folder), []);
});

test("the oldest rows are dropped if the files are too large", (t) => {
  const { spool, dropped } = aSpool(t, { maxBytes: 12 });
  spool.append("one\ntwo");
  assert.deepEqual(spool.oldest()?.batches, ["one\ntwo"]);
  spool.append("three");
  assert.equal(dropped(), 2);
  assert.deepEqual(spool.oldest()?.batches, ["three"]);
});

test("the files of another process are taken over when it has exited", (t) => {
  const first = aSpool(t);
  first.spool.append("a");
  const second = aSpool(t, { folder: first.folder });
  second.spool.adopt();
  assert.ok(second.spool.isEmpty);
  first.spool.close();
  second.spool.adopt();
  assert.deepEqual(second.spool.oldest()?.batches, ["a"]);
  second.spool.oldest()?.remove();
  assert.deepEqual(readdirSync(first.folder), []);
});

test("the files of a thread that died are taken over by its replacement, and those of a running process are not", (t) => {
  const first = aSpool(t);
  first.spool.append("a");
  const other = join(first.folder, "other");
  mkdirSync(other);
  // The file is new, so its owner is considered alive.
  const lock = JSON.stringify({ pid: 1, started: "0", place: "another machine" });
  writeFileSync(join(other, "lock"), lock);
  const second = aSpool(t, { folder: first.folder, isReplacement: true });
  second.spool.adopt();
  assert.deepEqual(second.spool.oldest()?.batches, ["a"]);
  assert.equal(readFileSync(join(other, "lock"), "utf8"), lock);
});

test("a line that was cut off is skipped", (t) => {
  const { spool, folder } = aSpool(t);
  spool.append('["too short"]');
  spool.append(JSON.stringify(COLUMNS.map(() => "not a number")));
  spool.append(JSON.stringify(COLUMNS.map((_, i) => (IS_NUMBER[i] ? null : "a"))));
  const [own = ""] = readdirSync(folder);
  const [file = ""] = readdirSync(join(folder, own)).filter((name) => name.endsWith(".rows"));
  appendFileSync(join(folder, own, file), '\n["cut o');
  const batches = spool.oldest()?.batches ?? [];
  assert.equal(batches.length, 3);
  assert.deepEqual(batches.flatMap(parseRows), []);
});

test("a row of an earlier version has no charges", () => {
  const values = COLUMNS.slice(0, COLUMNS.indexOf("charges")).map((_, i) => (IS_NUMBER[i] ? 0 : "a"));
  assert.equal(parseRows(JSON.stringify(values))[0]?.[COLUMN_INDEX.charges], "");
});
