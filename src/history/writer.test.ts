import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { aRow } from "../../test/support/history/history-row.ts";
import { migrate } from "./migrations.ts";
import { rowLines } from "./row-text.ts";
import { Spool } from "./spool.ts";
import { openSqliteEngine } from "./sqlite-engine.ts";
import { HistoryWriter } from "./writer.ts";

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
