/**
 * Implements the main thread's side of the history. It queues rows, starts the thread that writes them, and sends it
 * questions. A thread that dies is replaced, and its unacknowledged batch is sent again.
 */
import { Worker } from "node:worker_threads";
import { type Clock, wait } from "../../base/clock.ts";
import { embeddedText } from "../../base/embedded-files.ts";
import type { Logger } from "../log/logger.ts";
import type { Metrics } from "../log/metrics.ts";
import type { RowValues } from "./history-row.ts";
import type {
  FromHistoryThread,
  HistoryAnswers,
  HistoryQuestion,
  HistoryThreadData,
  HistoryThreadState,
  ToHistoryThread,
} from "./history-worker.ts";
import { type RowBatch, RowBatchBuilder } from "./row-batch.ts";

export const GATHER_MS = 200;
const BATCH_ROWS = 1_000;

interface RowQueueOptions {
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

/** The file is next to the program in the bundle, next to this file after compilation, or in the single executable. */
const WORKER_FILE = "history-worker.js";
const RESTART_MS = 1_000;
/** These limits bound the delay that an unreachable database causes at start and shutdown. */
const START_LIMIT_MS = 5_000;
const CLOSE_LIMIT_MS = 5_000;
const REPORT_DROPPED_MS = 10_000;
/** The default of V8 lets the thread keep several times as much memory, which its short-lived rows do not need. */
const YOUNG_GENERATION_MB = 8;

interface HistorySettings extends Omit<HistoryThreadData, "isReplacement"> {
  readonly maxQueueRows: number;
}

export interface HistoryStatus {
  readonly database: "sqlite" | "postgres";
  readonly state: "up" | "unavailable";
  readonly reason?: string;
  readonly queuedRows: number;
  readonly spoolBytes: number;
  /** `written`, `spooled`, and `dropped` count rows since the start of this process. */
  readonly written: number;
  readonly spooled: number;
  readonly dropped: number;
}

export interface History {
  add(row: RowValues): void;
  addBatch(batch: RowBatch): void;
  /** Rejects if the question cannot be answered, for example because the database is unavailable. */
  ask<Kind extends HistoryQuestion["kind"]>(
    question: Extract<HistoryQuestion, { kind: Kind }>,
  ): Promise<HistoryAnswers[Kind]>;
  status(): HistoryStatus;
  /**
   * Resolves with a reason if the gateway must not use the database. Otherwise, it resolves with undefined after the
   * first attempt to connect or a time limit.
   */
  readonly started: Promise<string | undefined>;
  close(): Promise<void>;
}

interface HistoryEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Removes the secrets of the configuration. */
  redact(text: string): string;
}

interface Asked {
  resolve(answer: unknown): void;
  reject(error: Error): void;
}

const NEW_STATE: HistoryThreadState = {
  counts: { written: 0, spooled: 0, dropped: 0 },
  spoolBytes: 0,
  unavailableReason: "not connected yet",
};

export function openHistory(settings: HistorySettings, { clock, logger, metrics, redact }: HistoryEnv): History {
  const asked = new Map<number, Asked>();
  let nextId = 1;
  let worker: Worker;
  let state = NEW_STATE;
  let isClosing = false;
  let droppedHere = 0;
  let reportedMs = Number.NEGATIVE_INFINITY;
  /** Sums the counts of threads that died. */
  let earlier = NEW_STATE.counts;
  let resolveStarted: (refusal: string | undefined) => void = () => undefined;
  const started = new Promise<string | undefined>((resolve) => {
    resolveStarted = resolve;
  });
  let resolveClosed: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => {
    resolveClosed = resolve;
  });

  const post = (message: ToHistoryThread): void => worker.postMessage(message);
  const queue = new RowQueue({
    clock,
    maxRows: settings.maxQueueRows,
    redact,
    send: (batch) => post({ kind: "rows", batch }),
    dropped(rows) {
      droppedHere += rows;
      if (clock.monotonicMs() - reportedMs < REPORT_DROPPED_MS) return;
      reportedMs = clock.monotonicMs();
      logger.error("history rows dropped", { rows, reason: "the database is slower than the traffic" });
    },
  });

  function receive(message: FromHistoryThread): void {
    if ("state" in message) ({ state } = message);
    switch (message.kind) {
      case "started":
        resolveStarted(message.refusal);
        return;
      case "accepted":
        queue.accepted();
        if (isClosing && queue.rows === 0) post({ kind: "close" });
        return;
      case "answer":
        asked.get(message.id)?.resolve(message.answer);
        asked.delete(message.id);
        return;
      case "failed":
        asked.get(message.id)?.reject(new Error(message.message));
        asked.delete(message.id);
        return;
      case "log":
        logger[message.level](message.message, message.fields);
        return;
      case "closed":
        resolveClosed();
        return;
    }
  }

  function start(isReplacement: boolean): void {
    const { folder, postgres, retention, maxSpoolBytes } = settings;
    const data: HistoryThreadData = { folder, postgres, retention, maxSpoolBytes, isReplacement };
    let fault = "the thread exited";
    worker = startWorker(data);
    worker.unref();
    worker.on("message", receive);
    worker.on("error", (error) => {
      fault = error.message;
    });
    worker.on("exit", () => {
      for (const { reject } of asked.values()) reject(new Error(`the history thread failed: ${fault}`));
      asked.clear();
      resolveStarted(undefined);
      resolveClosed();
      if (isClosing) return;
      logger.error("history thread died; replacing it", { reason: fault });
      earlier = sum(earlier, state.counts);
      state = { ...NEW_STATE, unavailableReason: fault };
      clock.after(RESTART_MS, () => {
        if (isClosing) return;
        start(true);
        queue.resend();
      });
    });
  }

  const counts = () => {
    const total = sum(earlier, state.counts);
    return { ...total, dropped: total.dropped + droppedHere };
  };
  start(false);
  metrics.gauge("gateway_history_up", "1 while the history database can be used, 0 while it is unavailable.", () =>
    state.unavailableReason === undefined ? 1 : 0,
  );
  metrics.gauge("gateway_history_queue_rows", "Rows of the history that wait in memory.", () => queue.rows);
  metrics.gauge(
    "gateway_history_spool_bytes",
    "The size of the files with rows of the history that wait for the database.",
    () => state.spoolBytes,
  );
  metrics.total("gateway_history_written_total", "Rows written to the history database.", () => counts().written);
  metrics.total(
    "gateway_history_spooled_total",
    "Rows of the history that went to a file first, because the database was unavailable or slow.",
    () => counts().spooled,
  );
  metrics.total("gateway_history_dropped_total", "Rows of the history that were lost.", () => counts().dropped);

  return {
    started: Promise.race([started, wait(clock, START_LIMIT_MS).then(() => undefined)]),
    add: (row) => queue.add(row),
    addBatch: (batch) => queue.addBatch(batch),
    ask(question) {
      const ask = (resolve: Asked["resolve"], reject: Asked["reject"]): void => {
        const id = nextId++;
        asked.set(id, { resolve, reject });
        post({ kind: "ask", id, question });
      };
      queue.flush();
      return new Promise((resolve, reject) => {
        // A deletion must not miss rows that wait.
        if (question.kind === "delete") queue.whenSent(() => ask(resolve as Asked["resolve"], reject));
        else ask(resolve as Asked["resolve"], reject);
      });
    },
    status: () => ({
      database: settings.postgres === undefined ? "sqlite" : "postgres",
      state: state.unavailableReason === undefined ? "up" : "unavailable",
      ...(state.unavailableReason === undefined ? {} : { reason: state.unavailableReason }),
      queuedRows: queue.rows,
      spoolBytes: state.spoolBytes,
      ...counts(),
    }),
    async close() {
      if (isClosing) return;
      queue.flush();
      isClosing = true;
      worker.ref();
      if (queue.rows === 0) post({ kind: "close" });
      await Promise.race([closed, wait(clock, CLOSE_LIMIT_MS)]);
      if (queue.rows > 0) logger.error("history rows dropped", { rows: queue.rows, reason: "the gateway stopped" });
      await worker.terminate();
    },
  };
}

function sum(one: HistoryThreadState["counts"], other: HistoryThreadState["counts"]): HistoryThreadState["counts"] {
  return {
    written: one.written + other.written,
    spooled: one.spooled + other.spooled,
    dropped: one.dropped + other.dropped,
  };
}

function startWorker(workerData: HistoryThreadData): Worker {
  const options = { workerData, resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB } };
  const embedded = embeddedText(WORKER_FILE);
  return embedded === undefined
    ? new Worker(new URL(`./${WORKER_FILE}`, import.meta.url), options)
    : new Worker(embedded, { ...options, eval: true });
}
