/**
 * Collects rows for a fraction of a second and passes them on in batches, one at a time. If more than `maxRows` rows
 * wait, the oldest batches are dropped.
 */
import type { Clock } from "../../base/clock.ts";
import type { RowValues } from "./history-row.ts";
import { type RowBatch, RowBatchBuilder } from "./row-batch.ts";

export const GATHER_MS = 200;
const BATCH_ROWS = 1_000;

export interface RowQueueOptions {
  readonly clock: Clock;
  readonly maxRows: number;
  /** Removes the secrets of the configuration. */
  redact(text: string): string;
  /** The next batch follows after `accepted` is called. */
  send(batch: RowBatch): void;
  dropped(rows: number): void;
}

export class RowQueue {
  readonly #options: RowQueueOptions;
  readonly #gathered: RowBatchBuilder;
  #isScheduled = false;
  #batches: RowBatch[] = [];
  #waitingRows = 0;
  #sent: RowBatch | undefined = undefined;
  /** Called when the batch was sent or dropped. */
  readonly #after = new Map<RowBatch, (() => void)[]>();

  constructor(options: RowQueueOptions) {
    this.#options = options;
    this.#gathered = new RowBatchBuilder(options.redact);
  }

  get rows(): number {
    return this.#gathered.rows + this.#waitingRows + (this.#sent?.rows ?? 0);
  }

  add(row: RowValues): void {
    this.#gathered.add(row);
    if (this.#gathered.rows >= BATCH_ROWS) this.flush();
    else if (!this.#isScheduled) {
      this.#isScheduled = true;
      this.#options.clock.after(GATHER_MS, () => {
        this.#isScheduled = false;
        this.flush();
      });
    }
  }

  addBatch(batch: RowBatch): void {
    this.#batches.push(batch);
    this.#waitingRows += batch.rows;
    this.#next();
    while (this.#waitingRows > this.#options.maxRows) {
      const oldest = this.#batches.shift();
      if (oldest === undefined) return;
      this.#waitingRows -= oldest.rows;
      this.#options.dropped(oldest.rows);
      this.#left(oldest);
    }
  }

  /** Queues the gathered rows as a batch immediately. */
  flush(): void {
    if (this.#gathered.rows > 0) this.addBatch(this.#gathered.take());
  }

  /** Calls back when all rows that were added were sent or dropped. */
  whenSent(next: () => void): void {
    this.flush();
    const last = this.#batches.at(-1);
    if (last === undefined) next();
    else this.#after.set(last, [...(this.#after.get(last) ?? []), next]);
  }

  accepted(): void {
    this.#sent = undefined;
    this.#next();
  }

  /** Sends the unaccepted batch again. */
  resend(): void {
    if (this.#sent !== undefined) this.#options.send(this.#sent);
  }

  #next(): void {
    if (this.#sent !== undefined) return;
    const batch = this.#batches.shift();
    if (batch === undefined) return;
    this.#waitingRows -= batch.rows;
    this.#sent = batch;
    this.#options.send(batch);
    this.#left(batch);
  }

  #left(batch: RowBatch): void {
    const callbacks = this.#after.get(batch) ?? [];
    this.#after.delete(batch);
    for (const next of callbacks) next();
  }
}
