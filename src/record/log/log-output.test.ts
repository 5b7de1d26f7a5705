import assert from "node:assert/strict";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../../../test/support/eventually.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { openRotatingFile } from "./log-output.ts";

function setUp(t: { after(end: () => void): void }, maxBytes: number, keep: number) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-rotating-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "a.log");
  const events: string[] = [];
  const open = () =>
    openRotatingFile({
      path,
      maxBytes,
      keep,
      clock: fakeClock(),
      dropped: (lines) => void events.push(`dropped ${lines}`),
      changed: (failure) => void events.push(failure ? "fails" : "works"),
    });
  const files = () =>
    Object.fromEntries(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), "utf8")]));
  return { path, events, open, files };
}

test("a full file is renamed, and only the configured number is kept", async (t) => {
  const { open, files } = setUp(t, 10, 2);
  for (const line of ["1234567\n", "abcdefg\n", "ABCDEFG\n", "8901234\n"]) {
    const file = open();
    file.write(line);
    await file.close();
  }
  assert.deepEqual(files(), { "a.log": "8901234\n", "a.log.1": "ABCDEFG\n", "a.log.2": "abcdefg\n" });
});

test("lines that do not fit into memory while the disk is unavailable are counted as dropped", async (t) => {
  const { open, path, events } = setUp(t, 1_000_000, 1);
  rmSync(join(path, ".."), { recursive: true });
  const file = open();
  file.write("a\n");
  file.write(`${"b".repeat(5 * 1024 * 1024)}\n`);
  await file.close();
  assert.deepEqual(events, ["dropped 1", "fails", "dropped 1"]);
  assert.equal(file.isWritable, false);
});

test("lines that wait for the disk are limited in sum, however many attempts fail", async (t) => {
  const { path, events, files } = setUp(t, 0, 0);
  const clock = fakeClock();
  const line = `${"x".repeat(64 * 1024 - 1)}\n`;
  const lines = 64;
  let dropped = 0;
  let written = 0;
  const write = (count: number): void => {
    for (let i = 0; i < count; i++) file.write(line);
    written += count;
  };
  const file = openRotatingFile({
    path,
    maxBytes: 1_000_000_000,
    keep: 1,
    // Lines are also written while each attempt is in progress.
    clock: {
      ...clock,
      after: (ms, callback) =>
        clock.after(ms, () => {
          callback();
          write(lines / 2);
        }),
    },
    dropped: (count) => {
      dropped += count;
    },
    changed: (failure) => void events.push(failure ? "fails" : "works"),
  });
  mkdirSync(path);
  for (let attempt = 0; attempt < 5; attempt++) {
    write(lines / 2);
    await clock.advance(1_000);
    await eventually("the attempt has failed", () => clock.pending() === 1);
  }
  assert.deepEqual([written - dropped, events], [lines, ["fails"]]);
  rmSync(path, { recursive: true });
  await clock.advance(1_000);
  await eventually("the lines were written", () => events.length === 2);
  assert.deepEqual(events, ["fails", "works"]);
  write(1);
  await file.close();
  assert.equal(files()["a.log"]?.length, (lines + 1) * line.length);
});

const OTHERS: readonly [what: string, action: (path: string) => void, left: Readonly<Record<string, string>>][] = [
  ["moves the file", (path) => renameSync(path, `${path}.moved`), { "a.log": "2\n", "a.log.moved": "1\n" }],
  ["removes the file", (path) => rmSync(path), { "a.log": "2\n" }],
  ["copies and cuts the file", (path) => truncateSync(path), { "a.log": "2\n" }],
  [
    "puts another file in its place",
    (path) => {
      writeFileSync(`${path}.new`, "0\n");
      renameSync(`${path}.new`, path);
    },
    { "a.log": "0\n2\n" },
  ],
];

for (const [what, action, left] of OTHERS) {
  test(`no line is lost when another program ${what}`, async (t) => {
    const { path, files } = setUp(t, 1_000, 1);
    const clock = fakeClock();
    const ignore = (): void => undefined;
    const file = openRotatingFile({ path, maxBytes: 1_000, keep: 1, clock, dropped: ignore, changed: ignore });
    file.write("1\n");
    await clock.advance(1_000);
    await eventually("the first line", () => files()["a.log"] === "1\n");
    action(path);
    file.write("2\n");
    await file.close();
    assert.deepEqual(files(), left);
  });
}
