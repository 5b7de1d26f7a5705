/**
 * Starts threads that take from the same buckets concurrently.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import type { BucketRule } from "../../src/policies/rate-limit/bucket-store.ts";

export interface LimitThreadData {
  readonly buffer: SharedArrayBuffer;
  readonly thread: number;
  readonly rule: BucketRule;
  readonly maxKeyed: number;
  readonly attempts: number;
  /** How many keys are asked for; 0: the bucket without a key. */
  readonly keys: number;
  readonly start: SharedArrayBuffer;
  readonly isEndless?: boolean;
}

export interface LimitThread {
  readonly worker: Worker;
  /** What it took. */
  readonly taken: Promise<number>;
}

export async function startLimitThreads(
  count: number,
  data: Omit<LimitThreadData, "thread" | "start">,
): Promise<{ threads: LimitThread[]; go(): void }> {
  const start = new SharedArrayBuffer(4);
  const threads = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const workerData: LimitThreadData = { ...data, thread: index + 1, start };
      const worker = new Worker(new URL("./limit-thread.js", import.meta.url), { workerData });
      await once(worker, "message");
      return { worker, taken: once(worker, "message").then(([taken]) => taken as number) };
    }),
  );
  return {
    threads,
    go() {
      Atomics.store(new Int32Array(start), 0, 1);
      Atomics.notify(new Int32Array(start), 0);
    },
  };
}
