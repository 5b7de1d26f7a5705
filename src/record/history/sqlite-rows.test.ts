import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { aRow, writeRows } from "../../../test/support/history/history-row.ts";
import { Random } from "../../../test/support/random.ts";
import type { HistoryEngine } from "./engine.ts";
import { COLUMN_INDEX, COLUMNS, type HistoryRow, type RowValues } from "./history-row.ts";
import { MIGRATIONS, migrate } from "./migrations.ts";
import { deleteSubject, expireSome } from "./queries.ts";
import { HOUR_MS } from "./row-batch.ts";
import { openSqliteEngine } from "./sqlite-engine.ts";

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

const RETENTION = { rowsMs: HOUR_MS, usageMs: 100 * HOUR_MS };
const valuesOf = (row: HistoryRow): RowValues => COLUMNS.map((name) => row[name]);

/** Returns all rows, oldest first. */
async function storedRows(engine: HistoryEngine): Promise<RowValues[]> {
  return (await engine.rows.before(Number.MAX_SAFE_INTEGER, 100_000)).map(valuesOf).reverse();
}

async function expireAll(engine: HistoryEngine, nowMs: number): Promise<void> {
  while (await expireSome(engine, RETENTION, nowMs));
}

test("rows are read as they were written, also through the view", async (t) => {
  const engine = await open(t);
  const rows = Array.from({ length: 20 }, (_, i) =>
    aRow({
      id: `r${String(i).padStart(2, "0")}`,
      time: NOW + Math.floor(i / 10) * HOUR_MS + i,
      status: i % 2 === 0 ? 200 : null,
      first_byte_us: i === 3 ? null : 900,
      route: "chat",
      subject: 'ada "the first" ü',
      request_id: i === 5 ? "" : `q${i}`,
      trace_id: i === 6 ? "t6" : "",
      charges: i === 7 ? '[["a",1]]' : "",
      cost_nano: 5_000_000_000 + i,
    }),
  );
  assert.equal(await writeRows(engine, rows.slice(0, 15)), 15);
  assert.equal(await writeRows(engine, rows.slice(0, 15)), 0);
  assert.equal(await writeRows(engine, rows.slice(15)), 5);
  assert.deepEqual(await storedRows(engine), rows);
  const shown = await engine.reader.all(`SELECT ${COLUMNS.join(", ")} FROM gateway_requests ORDER BY time, id`);
  assert.deepEqual(
    shown.map((row) => valuesOf(row as HistoryRow)),
    rows,
  );
  assert.deepEqual(await engine.rows.stored(), { rows: 20, firstMs: NOW, lastMs: NOW + HOUR_MS + 19 });
});

test("a reopened database knows the batches and finds the request IDs of every block", async (t) => {
  const folder = newFolder(t);
  const rows = ["a", "b", "c"].map((id) => aRow({ id, time: NOW, request_id: "same", team: "red" }));
  for (const row of rows) {
    const engine = await open(t, folder);
    await writeRows(engine, [row]);
    await engine.close();
  }
  const engine = await open(t, folder);
  for (const row of rows) assert.equal(await writeRows(engine, [row]), 0);
  assert.deepEqual((await engine.rows.withRequestId("same", 20)).map(valuesOf), rows.toReversed());
  assert.equal((await engine.rows.withRequestId("same", 2)).length, 2);
  assert.deepEqual(await engine.rows.withRequestId("other", 20), []);
});

test("a batch that was rolled back is written again", async (t) => {
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

test("blocks of a version without details are read and merged", async (t) => {
  const folder = newFolder(t);
  const engine = await openSqliteEngine(folder, fakeClock());
  t.after(() => engine.close());
  await migrate(engine, MIGRATIONS.sqlite.slice(0, 5));
  const old = aRow({ id: "old", time: NOW });
  await writeRows(engine, [old]);
  await engine.transaction((sql) =>
    sql.all("UPDATE gateway_blocks SET data = CAST(replace(CAST(data AS TEXT), ',\"\"]]', ']]') AS BLOB)"),
  );
  await migrate(engine);
  const rows = [old];
  for (let i = 0; i < 20; i++) {
    rows.push(aRow({ id: `new${String(i).padStart(2, "0")}`, time: NOW + 1 + i, details: "{}" }));
    await writeRows(engine, [rows.at(-1) as RowValues]);
  }
  const shown = await engine.reader.all("SELECT details FROM gateway_requests ORDER BY time LIMIT 2");
  assert.deepEqual(shown, [{ details: "" }, { details: "{}" }]);
  assert.deepEqual(await storedRows(engine), rows);
  await expireAll(engine, NOW);
  assert.ok((await count(engine, "gateway_blocks")) < rows.length);
  assert.deepEqual(await storedRows(engine), rows);
});

test("a deleted subject leaves no trace in blocks, and others keep their rows", async (t) => {
  const engine = await open(t);
  const of = (id: string, subject: string, hours: number, path = "/"): RowValues =>
    aRow({ id, time: NOW + hours * HOUR_MS, subject, path });
  const others = [of("3", "bob", 0, "ada"), of("4", "bob", 1)];
  await writeRows(engine, [of("1", "ada", 0), of("2", "ada", 1), ...others]);
  await writeRows(engine, [of("5", "ada", 2)]);
  assert.equal(await deleteSubject(engine, "ada"), 3);
  assert.deepEqual(await storedRows(engine), others);
  assert.equal(await count(engine, "gateway_blocks"), 1);
  const later = of("6", "ada", 3);
  await writeRows(engine, [later]);
  assert.deepEqual((await storedRows(engine)).at(-1), later);
});

test("a deletion ends while rows of its subject arrive, and merges hide no rows from it", async (t) => {
  const engine = await open(t);
  const of = (id: string, subject: string): RowValues => aRow({ id, time: NOW, subject });
  for (let i = 0; i < 100; i++) await writeRows(engine, [of(`old${i}`, i % 2 === 0 ? "ada" : "bob")]);
  let isDone = false;
  const deleting = engine.rows.deleteSubject("ada").then((deleted) => {
    isDone = true;
    return deleted;
  });
  let arrived = 0;
  for (; arrived < 1_000 && !isDone; arrived++) {
    await expireSome(engine, RETENTION, NOW);
    await writeRows(engine, [of(`new${arrived}`, "ada")]);
  }
  assert.ok(arrived < 1_000);
  assert.equal(await deleting, 50);
  const left = (await storedRows(engine)).map((row) => String(row[COLUMN_INDEX.id]));
  assert.equal(left.filter((id) => id.startsWith("old")).length, 50);
  assert.equal(left.filter((id) => id.startsWith("new")).length, arrived);
});

test("rows whose block has expired are deleted", async (t) => {
  const engine = await open(t);
  const rows = [0, 1, 2].map((hours) => aRow({ id: String(hours), time: NOW + hours * HOUR_MS + 5, route: "chat" }));
  for (const row of rows) await writeRows(engine, [row]);
  await expireAll(engine, NOW + 2 * HOUR_MS + 10);
  assert.deepEqual(await storedRows(engine), rows.slice(2));
  assert.equal(await count(engine, "gateway_usage"), 3);
});

test("the small blocks of an hour are merged", async (t) => {
  const engine = await open(t);
  const rows = Array.from({ length: 200 }, (_, i) =>
    aRow({ id: `r${i}`, time: NOW + i * 30_000, request_id: `q${i}`, team: `t${i % 3}` }),
  );
  for (const row of rows) await writeRows(engine, [row]);
  await expireAll(engine, NOW);
  assert.equal(await count(engine, "gateway_blocks"), 2);
  assert.deepEqual(await storedRows(engine), rows);
  assert.deepEqual((await engine.rows.withRequestId("q150", 5)).map(valuesOf), [rows[150]]);
  for (const row of rows) assert.equal(await writeRows(engine, [row]), 0);
});

test("rows in blocks equal a list of rows, for random batches, searches, deletions, and merges", async (t) => {
  for (let seed = 1; seed <= 5; seed++) {
    const random = new Random(seed);
    const engine = await open(t);
    let expected: RowValues[] = [];
    const at = (row: RowValues): number => row[COLUMN_INDEX.time] as number;
    const check = async (told: string): Promise<void> => {
      const beforeMs = NOW + random.int(3 * HOUR_MS);
      const limit = 1 + random.int(40);
      const older = expected.filter((row) => at(row) < beforeMs).sort(newestFirst);
      assert.deepEqual((await engine.rows.before(beforeMs, limit)).map(valuesOf), older.slice(0, limit), told);
      const id = `q${random.int(30)}`;
      const same = expected.filter((row) => row[COLUMN_INDEX.request_id] === id).sort(newestFirst);
      assert.deepEqual((await engine.rows.withRequestId(id, 1_000)).map(valuesOf), same, told);
      assert.equal((await engine.rows.stored()).rows, expected.length, told);
    };
    for (let step = 0; step < 60; step++) {
      const told = `seed ${seed}, step ${step}`;
      const batch = Array.from({ length: 1 + random.int(random.oneIn(5) ? 300 : 4) }, (_, i) =>
        aRow({
          id: `${step}-${i}`,
          // Requests can take long, so the times of batches overlap.
          time: NOW + step * 100_000 - random.int(random.oneIn(9) ? HOUR_MS : 1_000),
          request_id: `q${random.int(30)}`,
          subject: `s${random.int(4)}`,
          status: random.oneIn(5) ? null : 200,
          cost_nano: random.int(1_000),
        }),
      );
      assert.equal(await writeRows(engine, batch), batch.length, told);
      assert.equal(await writeRows(engine, batch), 0, told);
      expected.push(...batch);
      if (random.oneIn(10)) {
        const subject = `s${random.int(4)}`;
        const kept = expected.filter((row) => row[COLUMN_INDEX.subject] !== subject);
        assert.equal(await deleteSubject(engine, subject), expected.length - kept.length, told);
        expected = kept;
      }
      if (random.oneIn(5)) await expireAll(engine, NOW - HOUR_MS);
      await check(told);
    }
    await engine.close();
  }
});

function newestFirst(one: RowValues, other: RowValues): number {
  const [{ time }, id] = [COLUMN_INDEX, COLUMN_INDEX.id];
  return Number(other[time]) - Number(one[time]) || (String(one[id]) < String(other[id]) ? 1 : -1);
}

test("a database of version 3 keeps its rows", async (t) => {
  const engine = await openSqliteEngine(newFolder(t), fakeClock());
  t.after(() => engine.close());
  await migrate(engine, MIGRATIONS.sqlite.slice(0, 3));
  const rows = Array.from({ length: 2_500 }, (_, i) =>
    aRow({ id: `r${String(i).padStart(4, "0")}`, time: NOW + Math.floor(i / 100), team: `t${i % 2}` }),
  );
  const old = COLUMNS.slice(0, COLUMN_INDEX.details);
  const names = old.join(", ");
  await engine.transaction(async (sql) => {
    await sql.all("ALTER TABLE gateway_requests RENAME TO gateway_rows");
    await sql.all("CREATE TABLE gateway_attributes (number INTEGER)");
    await sql.all(`CREATE VIEW gateway_requests AS SELECT ${names} FROM gateway_rows`);
    const places = old.map((_, i) => `$${i + 1}`).join(", ");
    for (const row of rows)
      await sql.all(`INSERT INTO gateway_rows (${names}) VALUES (${places})`, row.slice(0, old.length));
  });
  await migrate(engine);
  assert.deepEqual(await storedRows(engine), rows);
  const tables = await engine.reader.all(
    "SELECT name FROM sqlite_master WHERE name IN ('gateway_rows', 'gateway_attributes')",
  );
  assert.deepEqual(tables, []);
});
