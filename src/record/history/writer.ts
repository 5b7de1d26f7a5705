/**
 * Writes batches of rows to the database. While the database is unavailable or slow, batches are spooled. The writer
 * reconnects in the background and then writes the spooled rows.
 */
import { type Clock, type Timer, wait } from "../../base/clock.ts";
import { type HistoryEngine, NewerSchema, type Sql, UnstorableRow } from "./engine.ts";
import {
  COLUMN_INDEX,
  COLUMNS,
  DIMENSIONS,
  parseCharges,
  parseRows,
  type RowValue,
  type RowValues,
  rowLines,
  SUMS,
  storedAccount,
} from "./history-row.ts";
import { expireSome, type Retention } from "./queries.ts";
import { batchOf, batchRows, type GroupedRows, groupRows, hourOf, type RowBatch } from "./row-batch.ts";
import type { Spool } from "./spool.ts";

const WIDTH = COLUMNS.length;
/** Both databases limit the parameters of a statement: 32766 in SQLite, 65535 in PostgreSQL. */
const ROWS_PER_STATEMENT = 100;

const ADDED = [
  ...SUMS.map((name) => `${name} = gateway_usage.${name} + excluded.${name}`),
  "last_time = CASE WHEN excluded.last_time > gateway_usage.last_time THEN excluded.last_time ELSE gateway_usage.last_time END",
].join(", ");
const USAGE_COLUMNS = ["hour", ...DIMENSIONS, ...SUMS, "last_time"];
const INSERT_USAGE = `INSERT INTO gateway_usage (${USAGE_COLUMNS.join(", ")}) VALUES`;
const INSERT_SPENDING = "INSERT INTO gateway_spending (account, amount, time) VALUES";
const SPENDING_CONFLICT =
  "ON CONFLICT (account) DO UPDATE SET amount = gateway_spending.amount + excluded.amount, time = excluded.time";
const USAGE_CONFLICT = `ON CONFLICT (hour, ${DIMENSIONS.join(", ")}) DO UPDATE SET ${ADDED}`;

const DIMENSION_INDEXES = DIMENSIONS.map((name) => COLUMN_INDEX[name === "user_name" ? "subject" : name]);
const RESULTS: readonly string[] = ["ok", "rejected", "failed", "aborted"];
/** `requests` and the results are counted. The other sums add the column of the same name. */
const FIRST_AMOUNT = 1 + RESULTS.length;
const AMOUNT_INDEXES = SUMS.slice(FIRST_AMOUNT).map((name) => COLUMN_INDEX[name as keyof typeof COLUMN_INDEX]);

/** Resolves with the number of rows that were not stored before. */
export function writeBatch(engine: HistoryEngine, batch: RowBatch): Promise<number> {
  const rows = groupRows(batch);
  return engine.transaction(async (sql) => {
    const added = await sql.insertRows(rows);
    await addUsage(sql, rows, sumsByGroup(rows, added));
    await addSpending(sql, rows, added);
    return added.length;
  });
}

interface GroupSums {
  /** The first row of the group. */
  readonly row: number;
  readonly sums: number[];
  /** The arrival of the last request. */
  lastMs: number;
}

function sumsByGroup({ values, firstRows, groupOfRow }: GroupedRows, rows: readonly number[]): GroupSums[] {
  const all = firstRows.map((row): GroupSums => ({ row, sums: SUMS.map(() => 0), lastMs: 0 }));
  for (const row of rows) {
    const group = all[groupOfRow[row] as number] as GroupSums;
    const { sums } = group;
    group.lastMs = Math.max(group.lastMs, values[row * WIDTH + COLUMN_INDEX.time] as number);
    sums[0] = (sums[0] as number) + 1;
    for (let i = 0; i < AMOUNT_INDEXES.length; i++)
      sums[FIRST_AMOUNT + i] =
        (sums[FIRST_AMOUNT + i] as number) + (values[row * WIDTH + (AMOUNT_INDEXES[i] as number)] as number);
  }
  return all.filter(({ sums }) => sums[0] !== 0);
}

/** Adds the sums of groups with the same hour and dimensions, and then adds them to the stored usage. */
async function addUsage(sql: Sql, { values, texts }: GroupedRows, groups: readonly GroupSums[]) {
  const entries = new Map<string, RowValue[]>();
  for (const { row, sums, lastMs } of groups) {
    const at = row * WIDTH;
    const text = (index: number): string => texts[values[at + index] as number] as string;
    const result = RESULTS.indexOf(text(COLUMN_INDEX.result));
    if (result >= 0) sums[1 + result] = sums[0] as number;
    const dimensions = [hourOf(values[at + COLUMN_INDEX.time] as number), ...DIMENSION_INDEXES.map(text)];
    const key = dimensions.join("\n");
    const known = entries.get(key);
    if (known === undefined) entries.set(key, [...dimensions, ...sums, lastMs]);
    else {
      const last = known.length - 1;
      for (const [i, sum] of sums.entries()) known[dimensions.length + i] = Number(known[dimensions.length + i]) + sum;
      known[last] = Math.max(Number(known[last]), lastMs);
    }
  }
  // Replicas update the same entries, and a common order prevents deadlocks.
  const sorted = [...entries].sort(([one], [other]) => (one < other ? -1 : 1));
  await insert(
    sql,
    INSERT_USAGE,
    sorted.map(([, entry]) => entry),
    USAGE_CONFLICT,
  );
}

/** Adds the amounts that budgets charged to the sums per account. */
async function addSpending(sql: Sql, { values, texts }: GroupedRows, rows: readonly number[]) {
  const sums = new Map<string, [amount: number, time: number]>();
  for (const row of rows) {
    const charges = texts[values[row * WIDTH + COLUMN_INDEX.charges] as number] as string;
    if (charges === "") continue;
    const time = values[row * WIDTH + COLUMN_INDEX.time] as number;
    for (const { account, amount } of parseCharges(charges)) {
      const stored = storedAccount(account);
      const [sum, latest] = sums.get(stored) ?? [0, 0];
      sums.set(stored, [sum + amount, Math.max(latest, time)]);
    }
  }
  const entries = [...sums].sort(([one], [other]) => (one < other ? -1 : 1));
  await insert(
    sql,
    INSERT_SPENDING,
    entries.map(([account, [amount, time]]) => [account, amount, time]),
    SPENDING_CONFLICT,
  );
}

/** Writes full chunks, and then chunks whose sizes are powers of two, so that few different statements are prepared. */
async function insert(sql: Sql, head: string, rows: readonly RowValues[], tail: string): Promise<void> {
  for (let at = 0; at < rows.length; ) {
    const left = rows.length - at;
    const size = left >= ROWS_PER_STATEMENT ? ROWS_PER_STATEMENT : largestPower(left);
    const parameters: RowValue[] = [];
    for (const end = at + size; at < end; at++) for (const value of rows[at] as RowValues) parameters.push(value);
    const statement = statementFor(head, size, parameters.length / size, tail);
    await sql.all(statement, parameters);
  }
}

function largestPower(size: number): number {
  return 2 ** Math.floor(Math.log2(size));
}

const statements = new Map<string, string>();

function statementFor(head: string, rows: number, columns: number, tail: string): string {
  const key = `${rows} ${head}`;
  let statement = statements.get(key);
  if (statement === undefined) {
    let count = 0;
    const row = (): string => `(${Array.from({ length: columns }, () => `$${++count}`).join(", ")})`;
    statement = `${head} ${Array.from({ length: rows }, row).join(", ")} ${tail}`;
    statements.set(key, statement);
  }
  return statement;
}

const RECONNECT_MS = 1_000;
const TIDY_EVERY_MS = 60_000;
/** A batch that is not stored after this time is also spooled, so that it survives a crash. */
const SLOW_WRITE_MS = 300;

export interface WriterCounts {
  written: number;
  spooled: number;
  dropped: number;
}

export interface WriterOptions {
  readonly clock: Clock;
  readonly spool: Spool;
  readonly retention: Retention;
  readonly counts: WriterCounts;
  /** Opens and migrates the database. `lost` reports a connection that broke later. */
  open(lost: (error: Error) => void): Promise<HistoryEngine>;
  log(level: "info" | "warn" | "error", message: string, fields: Readonly<Record<string, string | number>>): void;
}

export class HistoryWriter {
  readonly #options: WriterOptions;
  #engine: HistoryEngine | undefined = undefined;
  #reason: string | undefined = "not connected yet";
  #isClosed = false;
  #isBusy = false;
  #isDraining = false;
  /** The last write, or the last writing of spooled rows. */
  #writing: Promise<void> = Promise.resolve();
  #timers: Timer[] = [];
  #connecting: Promise<void> | undefined = undefined;

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  /**
   * Resolves after the first attempt to connect. Rejects with `NewerSchema` if a newer version of the gateway has
   * migrated the database.
   */
  async start(): Promise<void> {
    const { clock } = this.#options;
    this.#timers = [
      clock.every(RECONNECT_MS, () => void this.#connect().catch(() => undefined)),
      clock.every(TIDY_EVERY_MS, () => this.#tidy()),
    ];
    await this.#connect();
    void this.#expire();
  }

  /** Undefined while the database can be used. */
  get unavailableReason(): string | undefined {
    return this.#reason;
  }

  /** Throws if the database is unavailable. */
  engine(): HistoryEngine {
    if (this.#engine === undefined) throw new Error(`the history database is unavailable: ${this.#reason}`);
    return this.#engine;
  }

  /** Resolves when the batch is stored, spooled, or dropped. Never rejects. */
  async accept(batch: RowBatch): Promise<void> {
    const { clock, counts } = this.#options;
    const engine = this.#engine;
    if (engine === undefined || this.#isBusy) {
      this.#spool(batch);
      return;
    }
    this.#isBusy = true;
    let isStored = false;
    this.#writing = this.#writeStorable(engine, batch).then(
      (added) => {
        isStored = true;
        counts.written += added;
        this.#isBusy = false;
        void this.flush();
      },
      (error) => {
        this.#isBusy = false;
        this.#lost(engine, error);
      },
    );
    await Promise.race([this.#writing, wait(clock, SLOW_WRITE_MS)]);
    if (!isStored) this.#spool(batch);
  }

  /** Resolves when all accepted rows are stored, or the database is unavailable. */
  async settle(): Promise<void> {
    for (;;) {
      await this.#writing;
      if (this.#engine === undefined || (!this.#isBusy && this.#options.spool.isEmpty)) return;
      await this.flush();
    }
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    await this.flush();
    this.#isClosed = true;
    const engine = this.#engine;
    this.#engine = undefined;
    await engine?.close();
    this.#options.spool.close();
  }

  async #connect(): Promise<void> {
    if (this.#engine !== undefined || this.#isClosed) return;
    this.#connecting ??= this.#open().finally(() => {
      this.#connecting = undefined;
    });
    await this.#connecting;
  }

  async #open(): Promise<void> {
    const { log, spool } = this.#options;
    try {
      const engine: HistoryEngine = await this.#options.open((error) => this.#lost(engine, error));
      if (this.#isClosed) {
        await engine.close();
        return;
      }
      this.#engine = engine;
      if (this.#reason !== undefined) log("info", "history database available", { database: engine.kind });
      this.#reason = undefined;
      spool.adopt();
      void this.flush();
    } catch (error) {
      const { message } = error as Error;
      if (this.#reason !== message) log("error", "history database unavailable", { reason: message });
      this.#reason = message;
      if (error instanceof NewerSchema) throw error;
    }
  }

  #lost(engine: HistoryEngine, error: Error): void {
    if (this.#engine !== engine) return;
    this.#engine = undefined;
    this.#reason = error.message;
    this.#options.log("error", "history database unavailable", { reason: error.message });
    void engine.close().catch(() => undefined);
  }

  /** Splits a batch that the database rejects until only the rejected rows are left, and drops them. */
  async #writeStorable(engine: HistoryEngine, batch: RowBatch): Promise<number> {
    try {
      return await writeBatch(engine, batch);
    } catch (error) {
      if (!(error instanceof UnstorableRow)) throw error;
      const rows = batchRows(batch);
      const [row] = rows;
      if (row !== undefined && rows.length === 1) {
        this.#drop(1, `the database rejects the row ${row[0]}: ${error.message}`);
        return 0;
      }
      const middle = Math.ceil(rows.length / 2);
      const first = await this.#writeStorable(engine, batchOf(rows.slice(0, middle)));
      return first + (await this.#writeStorable(engine, batchOf(rows.slice(middle))));
    }
  }

  #spool(batch: RowBatch): void {
    try {
      this.#options.spool.append(rowLines(batchRows(batch)));
      this.#options.counts.spooled += batch.rows;
    } catch (error) {
      this.#drop(batch.rows, (error as Error).message);
    }
  }

  #drop(rows: number, reason: string): void {
    this.#options.counts.dropped += rows;
    this.#options.log("error", "history rows dropped", { rows, reason });
  }

  /**
   * Writes spooled rows until none are left or the database is unavailable. Does nothing while other rows are being
   * written.
   */
  async flush(): Promise<void> {
    if (this.#isDraining || this.#isBusy) return;
    this.#isDraining = true;
    this.#writing = this.#writeWaiting();
    await this.#writing;
  }

  async #writeWaiting(): Promise<void> {
    const { spool, counts } = this.#options;
    try {
      for (;;) {
        const engine = this.#engine;
        if (engine === undefined || this.#isBusy || spool.isEmpty) return;
        const oldest = spool.oldest();
        if (oldest === undefined) return;
        this.#isBusy = true;
        try {
          for (const batch of oldest.batches) {
            const rows = parseRows(batch);
            if (rows.length > 0) counts.written += await this.#writeStorable(engine, batchOf(rows));
          }
          oldest.remove();
        } catch (error) {
          this.#lost(engine, error as Error);
        } finally {
          this.#isBusy = false;
        }
      }
    } finally {
      this.#isDraining = false;
    }
  }

  #tidy(): void {
    if (this.#engine === undefined) return;
    try {
      // A process that was replaced may have exited in the meantime.
      this.#options.spool.adopt();
    } catch (error) {
      this.#options.log("warn", "cannot take over history rows", { reason: (error as Error).message });
    }
    void this.flush();
    void this.#expire();
  }

  async #expire(): Promise<void> {
    const { retention, clock } = this.#options;
    const engine = this.#engine;
    if (engine === undefined) return;
    try {
      while (this.#engine === engine && (await expireSome(engine, retention, clock.now())))
        await new Promise((resolve) => setImmediate(resolve));
    } catch (error) {
      this.#lost(engine, error as Error);
    }
  }
}
