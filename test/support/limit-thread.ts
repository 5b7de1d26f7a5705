/** A worker for bucket-threads.test.ts that takes from shared buckets as fast as it can and reports how much it took. */
import { parentPort, workerData } from "node:worker_threads";
import { BucketStore } from "../../src/policies/rate-limit/bucket-store.ts";
import type { LimitThreadData } from "./limit-threads.ts";

const { buffer, thread, rule, maxKeyed, attempts, keys, start, isEndless } = workerData as LimitThreadData;
const store = new BucketStore(rule, maxKeyed, undefined, { buffer, isNew: false, thread });
const gate = new Int32Array(start);
parentPort?.postMessage("ready");
Atomics.wait(gate, 0, 0);
let taken = 0;
for (let i = 0; isEndless || i < attempts; i++) {
  store.withLock(() => {
    const slot = store.open(keys === 0 ? undefined : `key ${(i * 7 + thread) % keys}`, 1);
    if (store.remaining(slot) >= 1) taken += store.take(slot, 1);
  });
}
parentPort?.postMessage(taken);
