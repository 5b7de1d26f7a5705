/**
 * What waits to be exported, in bounded memory: a queue, one export at a time, and a count of what was dropped because
 * the queue was full or the collector did not take it. Whoever adds something never waits.
 */
import type { Clock, Timer } from "../lib/process/clock.ts";

export interface ExportQueueEnv<Item> {
  readonly clock: Clock;
  readonly limits?: ExportQueueLimits;
  /** Resolves when the collector has taken them; rejects when it has not, after the retries of the protocol. */
  send(items: Item[]): Promise<void>;
  dropped(count: number, reason: "queue_full" | "export_failed"): void;
  exported(count: number): void;
  /** How exports go, when that changes. */
  changed(failure: Error | undefined): void;
}

export interface ExportQueueLimits {
  readonly items: number;
  readonly batch: number;
  readonly delayMs: number;
}

/** A batch is written in one go: this many spans hold the event loop for about 2 ms. */
const LIMITS: ExportQueueLimits = { items: 4_096, batch: 256, delayMs: 1_000 };

export interface ExportQueue<Item> {
  add(item: Item): void;
  /** Everything that waits is sent, up to the limit; what is left is dropped. */
  close(limitMs: number): Promise<void>;
  readonly size: number;
}

export function createExportQueue<Item>(env: ExportQueueEnv<Item>): ExportQueue<Item> {
  const { clock, limits = LIMITS } = env;
  let waiting: Item[] = [];
  let timer: Timer | undefined;
  let sending: Promise<void> | undefined;
  let isFailing = false;
  let isClosed = false;

  async function sendBatch(items: Item[]): Promise<void> {
    try {
      await env.send(items);
      env.exported(items.length);
      if (isFailing) env.changed(undefined);
      isFailing = false;
    } catch (error) {
      env.dropped(items.length, "export_failed");
      if (!isFailing) env.changed(error as Error);
      isFailing = true;
    }
  }

  function flush(): void {
    timer?.cancel();
    timer = undefined;
    if (sending !== undefined || waiting.length === 0) return;
    const items = waiting.splice(0, limits.batch);
    sending = sendBatch(items).finally(() => {
      sending = undefined;
      if (waiting.length >= limits.batch || (isClosed && waiting.length > 0)) flush();
      else arm();
    });
  }

  function arm(): void {
    if (waiting.length > 0 && timer === undefined && sending === undefined) timer = clock.after(limits.delayMs, flush);
  }

  return {
    add(item) {
      if (isClosed || waiting.length >= limits.items) {
        env.dropped(1, "queue_full");
        return;
      }
      waiting.push(item);
      if (sending !== undefined || timer === undefined) arm();
      if (waiting.length >= limits.batch && sending === undefined) flush();
    },
    async close(limitMs) {
      isClosed = true;
      flush();
      let isOver = false;
      const limit = new Promise<void>((resolve) => {
        clock.after(limitMs, () => {
          isOver = true;
          resolve();
        });
      });
      while (sending !== undefined && !isOver) await Promise.race([sending, limit]);
      if (waiting.length > 0) env.dropped(waiting.length, "queue_full");
      waiting = [];
    },
    get size() {
      return waiting.length;
    },
  };
}
