/**
 * Collects rows for a fraction of a second and passes them on in batches, one at a time. If more than `maxRows` rows
 * wait, the oldest batches are dropped.
 */
import type { Clock } from "../base/clock.ts";

export const GATHER_MS = 200;
const BATCH_ROWS = 1_000;

export interface RowQueueOptions {
  readonly clock: Clock;
  readonly maxRows: number;
  /** `text` contains one row per line. The next batch follows after `accepted` is called. */
  send(text: string): void;
  dropped(rows: number): void;
}

interface Batch {
  readonly text: string;
  readonly rows: number;
}

export class RowQueue {
  readonly #options: RowQueueOptions;
  #gathered: string[] = [];
  #isScheduled = false;
  #batches: Batch[] = [];
  #waitingRows = 0;
  #sent: Batch | undefined = undefined;

  constructor(options: RowQueueOptions) {
    this.#options = options;
  }

  get rows(): number {
    return this.#gathered.length + this.#waitingRows + (this.#sent?.rows ?? 0);
  }

  add(line: string): void {
    this.#gathered.push(line);
    if (this.#gathered.length >= BATCH_ROWS) this.flush();
    else if (!this.#isScheduled) {
      this.#isScheduled = true;
      this.#options.clock.after(GATHER_MS, () => {
        this.#isScheduled = false;
        this.flush();
      });
    }
  }

  /** `text` contains one row per line. */
  addBatch(text: string): void {
    let rows = 1;
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) rows += 1;
    this.#push({ text, rows });
  }

  /** Queues the gathered rows as a batch immediately. */
  flush(): void {
    if (this.#gathered.length === 0) return;
    const lines = this.#gathered;
    this.#gathered = [];
    this.#push({ text: lines.join("\n"), rows: lines.length });
  }

  accepted(): void {
    this.#sent = undefined;
    this.#next();
  }

  /** Sends the unaccepted batch again. */
  resend(): void {
    if (this.#sent !== undefined) this.#options.send(this.#sent.text);
  }

  #push(batch: Batch): void {
    this.#batches.push(batch);
    this.#waitingRows += batch.rows;
    this.#next();
    while (this.#waitingRows > this.#options.maxRows) {
      const oldest = this.#batches.shift();
      if (oldest === undefined) return;
      this.#waitingRows -= oldest.rows;
      this.#options.dropped(oldest.rows);
    }
  }

  #next(): void {
    if (this.#sent !== undefined) return;
    const batch = this.#batches.shift();
    if (batch === undefined) return;
    this.#waitingRows -= batch.rows;
    this.#sent = batch;
    this.#options.send(batch.text);
  }
}
