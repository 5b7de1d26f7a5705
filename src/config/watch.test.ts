import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { watchFiles } from "./watch.ts";

/** One watched file, what was loaded of it, and what was said about it. */
function watched(t: TestContext, whileLoading: (file: string) => void = () => undefined) {
  const folder = mkdtempSync(join(tmpdir(), "watch-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "config.yaml");
  writeFileSync(file, "one");
  const clock = fakeClock();
  const loaded: string[] = [];
  const said: string[] = [];
  const read = (): string => readFileSync(file, "utf8");
  const watch = watchFiles({
    clock,
    paths: () => [file],
    read,
    loaded: "one",
    async onChange() {
      loaded.push(read());
      whileLoading(file);
    },
    onUnreadable: () => void said.push("unreadable"),
    onRestored: () => void said.push("restored"),
  });
  t.after(() => watch.stop());
  return { file, clock, loaded, said };
}

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
