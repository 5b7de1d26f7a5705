import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { aRow } from "../../test/support/history/history-row.ts";
import type { HistoryEngine } from "./engine.ts";
import { COLUMNS, type RowValues } from "./history-row.ts";
import { migrate } from "./migrations.ts";
import { deleteSubject, expireSome, requestsBefore, requestsWithId } from "./request-query.ts";
import { HOUR_MS } from "./row-groups.ts";
import { openSqliteEngine } from "./sqlite-engine.ts";
import { writeRows } from "./write-rows.ts";

const NOW = 1_763_000_000_000 - (1_763_000_000_000 % HOUR_MS);

function newFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "sqlite-rows-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function open(t: TestContext, folder = newFolder(t)): Promise<HistoryEngine> {
  const engine = await openSqliteEngine(folder, fakeClock());
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (isOpen) await engine.close();
    isOpen = false;
  };
  t.after(close);
  await migrate(engine);
  return { ...engine, close };
}

const count = async (engine: HistoryEngine, table: string): Promise<number> =>
  Number((await engine.reader.all(`SELECT COUNT(*) AS n FROM ${table}`))[0]?.n);

async function storedRows(engine: HistoryEngine): Promise<RowValues[]> {
  const rows = await requestsBefore(engine.reader, Number.MAX_SAFE_INTEGER, 100);
  return rows.map((row) => COLUMNS.map((name) => row[name])).reverse();
}

test("rows are read as they were written, and their common values are stored once per hour", async (t) => {
  const engine = await open(t);
  const rows = Array.from({ length: 20 }, (_, i) =>
    aRow({
      id: `r${String(i).padStart(2, "0")}`,
      time: NOW + Math.floor(i / 10) * HOUR_MS + i,
      status: i % 2 === 0 ? 200 : null,
      first_byte_us: i === 3 ? null : 900,
      route: "chat",
      subject: "ada",
      request_id: i === 5 ? "" : `q${i}`,
      trace_id: i === 6 ? "t6" : "",
      charges: i === 7 ? '[["a",1]]' : "",
      cost_nano: 5_000_000_000 + i,
    }),
  );
  await writeRows(engine, rows.slice(0, 15));
  await writeRows(engine, rows);
  assert.deepEqual(await storedRows(engine), rows);
  assert.equal(await count(engine, "gateway_attributes"), 4);
});

test("a reopened database continues with new attributes and finds the rows of every bucket", async (t) => {
  const folder = newFolder(t);
  for (const id of ["a", "b", "c"]) {
    const engine = await open(t, folder);
    await writeRows(engine, [aRow({ id, time: NOW, request_id: "same", team: "red" })]);
    await engine.close();
  }
  const engine = await open(t, folder);
  assert.deepEqual((await requestsWithId(engine, "same")).map(({ id, team }) => [id, team]).sort(), [
    ["a", "red"],
    ["b", "red"],
    ["c", "red"],
  ]);
  assert.deepEqual(await requestsWithId(engine, "other"), []);
  const buckets = await engine.reader.all("SELECT DISTINCT bucket FROM gateway_rows ORDER BY bucket");
  assert.deepEqual(
    buckets.map(({ bucket }) => bucket),
    [1, 2, 3],
  );
});

test("a search for a request ID uses the index", async (t) => {
  const engine = await open(t);
  const plan = await engine.reader.all(
    `EXPLAIN QUERY PLAN SELECT path FROM gateway_requests WHERE ${engine.requestIdCondition}`,
    ["x"],
  );
  assert.match(plan.map(({ detail }) => detail).join("\n"), /gateway_rows_request_id \(bucket=\? AND request_id=\?\)/);
});

test("attributes that were rolled back are written again", async (t) => {
  const engine = await open(t);
  const row = aRow({ id: "a", time: NOW, route: "chat" });
  const failing: HistoryEngine = {
    ...engine,
    transaction: (work) =>
      engine.transaction(async (sql) => {
        await work(sql);
        throw new Error("disk full");
      }),
  };
  await assert.rejects(writeRows(failing, [row]), /disk full/);
  assert.equal(await writeRows(engine, [row]), 1);
  assert.deepEqual(await storedRows(engine), [row]);
});

test("a deleted subject leaves no attributes, and later rows have their own", async (t) => {
  const engine = await open(t);
  const of = (id: string, subject: string, hours: number): RowValues =>
    aRow({ id, time: NOW + hours * HOUR_MS, subject, route: "chat" });
  const others = [of("3", "bob", 0), of("4", "bob", 1)];
  await writeRows(engine, [of("1", "ada", 0), of("2", "ada", 1), ...others]);
  assert.equal(await deleteSubject(engine, "ada"), 2);
  assert.deepEqual(await engine.reader.all("SELECT 1 FROM gateway_attributes WHERE subject = $1", ["ada"]), []);
  assert.deepEqual(await storedRows(engine), others);
  const later = of("5", "ada", 2);
  await writeRows(engine, [of("6", "ada", 1), later]);
  assert.equal((await storedRows(engine)).length, 4);
  assert.deepEqual((await storedRows(engine)).at(-1), later);
});

test("expired rows and their attributes are deleted", async (t) => {
  const engine = await open(t);
  const rows = [0, 1, 2].map((hours) => aRow({ id: String(hours), time: NOW + hours * HOUR_MS + 5, route: "chat" }));
  await writeRows(engine, rows);
  await expireSome(engine, { rowsMs: HOUR_MS, usageMs: 100 * HOUR_MS }, NOW + 2 * HOUR_MS + 10);
  assert.deepEqual(await storedRows(engine), rows.slice(2));
  assert.equal(await count(engine, "gateway_attributes"), 2);
  assert.equal(await count(engine, "gateway_usage"), 3);
});
