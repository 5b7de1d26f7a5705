/**
 * Writes batches of rows to the database. While the database is unavailable or slow, batches are spooled. The writer
 * reconnects in the background and then writes the spooled rows.
 */
import { type Clock, type Timer, wait } from "../../base/clock.ts";
import { type HistoryEngine, NewerSchema, UnstorableRow } from "./engine.ts";
import { expireSome, type Retention } from "./request-query.ts";
import { batchOf, batchRows, type RowBatch } from "./row-batch.ts";
import { parseRows, rowLines } from "./row-text.ts";
import type { Spool } from "./spool.ts";
import { writeBatch } from "./write-rows.ts";

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
        void this.#drain();
      },
      (error) => {
        this.#isBusy = false;
        this.#lost(engine, error);
      },
    );
    await Promise.race([this.#writing, wait(clock, SLOW_WRITE_MS)]);
    if (!isStored) this.#spool(batch);
  }

  /** Writes the spooled rows if the database is available and no other rows are being written. */
  async flush(): Promise<void> {
    await this.#drain();
  }

  /** Resolves when all accepted rows are stored, or the database is unavailable. */
  async settle(): Promise<void> {
    for (;;) {
      await this.#writing;
      if (this.#engine === undefined || (!this.#isBusy && this.#options.spool.isEmpty)) return;
      await this.#drain();
    }
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    await this.#drain();
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
      void this.#drain();
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

  async #writeSpooled(engine: HistoryEngine, batches: readonly string[]): Promise<number> {
    let added = 0;
    for (const batch of batches) {
      const rows = parseRows(batch);
      if (rows.length > 0) added += await this.#writeStorable(engine, batchOf(rows));
    }
    return added;
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
  async #drain(): Promise<void> {
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
          counts.written += await this.#writeSpooled(engine, oldest.batches);
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
    void this.#drain();
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
