import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { aRow } from "../../../test/support/history/history-row.ts";
import { rowLines } from "./history-row.ts";
import { migrate } from "./migrations.ts";
import { batchOf } from "./row-batch.ts";
import { Spool } from "./spool.ts";
import { openSqliteEngine } from "./sqlite-engine.ts";
import { HistoryWriter } from "./writer.ts";

test("a writer has settled when the spooled rows are stored, also while they are being written", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "writer-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const clock = fakeClock();
  const spool = new Spool({
    folder: join(folder, "spool"),
    maxBytes: 1e6,
    clock,
    isReplacement: false,
    dropped: () => undefined,
  });
  for (const id of ["1", "2", "3"]) spool.append(rowLines([aRow({ id, time: clock.now() })]));
  const writer = new HistoryWriter({
    clock,
    spool,
    retention: { rowsMs: 1e9, usageMs: 1e9 },
    counts: { written: 0, spooled: 0, dropped: 0 },
    async open() {
      const engine = await openSqliteEngine(folder, clock);
      await migrate(engine);
      return engine;
    },
    log: () => undefined,
  });
  t.after(() => writer.close());
  // The spooled rows are written as soon as the database is open.
  await writer.start();
  const accepted = writer.accept(batchOf([aRow({ id: "4", time: clock.now() })]));
  await writer.settle();
  assert.equal((await writer.engine().rows.stored()).rows, 4);
  await accepted;
});

test("rows of a process that exits later are taken over while the database is available", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "writer-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const clock = fakeClock();
  const openSpool = (): Spool =>
    new Spool({ folder: join(folder, "spool"), maxBytes: 1e6, clock, isReplacement: false, dropped: () => undefined });
  const replaced = openSpool();
  replaced.append(rowLines([aRow({ id: "1", time: clock.now() })]));
  const counts = { written: 0, spooled: 0, dropped: 0 };
  const writer = new HistoryWriter({
    clock,
    spool: openSpool(),
    retention: { rowsMs: 1e9, usageMs: 1e9 },
    counts,
    async open() {
      const engine = await openSqliteEngine(folder, clock);
      await migrate(engine);
      return engine;
    },
    log: () => undefined,
  });
  t.after(() => writer.close());
  await writer.start();
  await clock.advance(60_000);
  assert.equal((await writer.engine().rows.stored()).rows, 0);
  replaced.close();
  await clock.advance(60_000);
  await writer.flush();
  assert.equal((await writer.engine().rows.stored()).rows, 1);
  assert.equal(counts.written, 1);
});
