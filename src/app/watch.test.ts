import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import type { Clock } from "../base/clock.ts";
import { fileMark, watchFiles } from "./watch.ts";

/**
 * Watches a file whose first line may name another file (`name: other`), as a configuration names a certificate. A
 * load is asynchronous, as in production: it reads the files after a while and ends after another while.
 */
function watched(t: TestContext, whileLoading: (file: string, other: string) => void = () => undefined) {
  const folder = mkdtempSync(join(tmpdir(), "watch-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "config.yaml");
  const other = join(folder, "other.pem");
  writeFileSync(file, "one");
  writeFileSync(other, "certificate 1");
  const clock = fakeClock();
  const loaded: string[] = [];
  const said: string[] = [];
  let marks = new Map<string, string>();
  const text = (path: string): string => readFileSync(path, "utf8");
  const read = (): string => [file, ...marks.keys()].map(text).join("|");
  const watch = watchFiles({
    clock,
    paths: () => [file, ...marks.keys()],
    marks: () => marks,
    read,
    loaded: "one",
    async onChange() {
      await passed(clock, 10);
      const config = text(file);
      const found = new Map(config.includes("name: other") ? [[other, fileMark(other)]] : []);
      loaded.push([config, ...[...found.keys()].map(text)].join("|"));
      whileLoading(file, other);
      await passed(clock, 10);
      marks = found;
    },
    onUnreadable: () => void said.push("unreadable"),
    onRestored: () => void said.push("restored"),
  });
  t.after(() => watch.stop());
  return { file, other, clock, loaded, said };
}

function passed(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.after(ms, resolve));
}

test("an edit that names a new file is loaded once", async (t) => {
  const { file, other, clock, loaded } = watched(t);
  await clock.advance(1_000);
  writeFileSync(file, "name: other");
  await clock.advance(5_000);
  assert.deepEqual(loaded, ["name: other|certificate 1"]);
  writeFileSync(other, "certificate 2");
  await clock.advance(5_000);
  assert.deepEqual(loaded.slice(1), ["name: other|certificate 2"]);
});

test("a newly named file that changes after the load has read it is loaded again", async (t) => {
  const { file, clock, loaded } = watched(t, (_, other) => {
    if (readFileSync(other, "utf8") === "certificate 1") writeFileSync(other, "certificate 22");
  });
  await clock.advance(1_000);
  writeFileSync(file, "name: other");
  await clock.advance(5_000);
  assert.deepEqual(loaded, ["name: other|certificate 1", "name: other|certificate 22"]);
});

test("what did not change is not loaded, also when it is written again", async (t) => {
  const { file, clock, loaded } = watched(t);
  await clock.advance(1_000);
  writeFileSync(file, "one");
  await clock.advance(1_000);
  assert.deepEqual(loaded, []);
});

test("a file that is written again while it is loaded is loaded again: the last content wins", async (t) => {
  let rounds = 0;
  const { file, clock, loaded } = watched(t, (at) => {
    rounds += 1;
    if (rounds < 3) writeFileSync(at, `while loading ${rounds}`);
  });
  await clock.advance(1_000);
  writeFileSync(file, "two");
  await clock.advance(5_000);
  assert.deepEqual(loaded, ["two", "while loading 1", "while loading 2"]);
});

test("a file that is away for the moment of its replacement is no complaint", async (t) => {
  const { file, clock, loaded, said } = watched(t);
  await clock.advance(1_000);
  renameSync(file, `${file}~`);
  // The next look finds nothing; before the second read the new file is there.
  await clock.advance(250);
  writeFileSync(file, "two");
  await clock.advance(1_000);
  assert.deepEqual(said, []);
  assert.deepEqual(loaded, ["two"]);
});

test("a file that stays away is said once, and so is its return", async (t) => {
  const { file, clock, loaded, said } = watched(t);
  renameSync(file, `${file}~`);
  await clock.advance(3_000);
  assert.deepEqual(said, ["unreadable"]);
  renameSync(`${file}~`, file);
  await clock.advance(3_000);
  assert.deepEqual(said, ["unreadable", "restored"]);
  assert.deepEqual(loaded, []);
});
