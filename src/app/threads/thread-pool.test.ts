import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import type { Worker } from "node:worker_threads";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { createSharedMemory } from "../../base/shared-memory.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createMetrics } from "../../record/log/metrics.ts";
import { createConfigurableStore } from "../../store/open-store.ts";
import type { Order, ThreadData, ToThread } from "./messages.ts";
import { openThreadPool } from "./thread-pool.ts";

/** A thread that reports success, unless it dies or hangs when it gets an order. */
class FakeWorker extends EventEmitter {
  readonly orders: string[] = [];
  diesOf: Order["kind"] | undefined = undefined;
  hangsAt: Order["kind"] | undefined = undefined;
  isTerminated = false;

  postMessage(message: ToThread): void {
    if (message.kind !== "order") return;
    const { id, order } = message;
    this.orders.push(order.kind === "prepare" ? `prepare ${order.snapshot.texts[0]?.text}` : order.kind);
    if (order.kind === this.hangsAt) return;
    if (order.kind === this.diesOf) setImmediate(() => this.emit("exit", 1));
    else setImmediate(() => this.emit("message", { kind: "report", id, report: { ports: new Map() } }));
  }

  async terminate(): Promise<number> {
    if (!this.isTerminated) this.emit("exit", 1);
    this.isTerminated = true;
    return 1;
  }
}

/** Threads that replace others hang when they get the order `replacementHangsAt`. */
function setUp(replacementHangsAt?: Order["kind"]) {
  const clock = fakeClock();
  const metrics = createMetrics();
  const memory = createMemoryBudget(clock);
  const workers: { readonly number: number; readonly worker: FakeWorker }[] = [];
  let text = "first";
  const pool = openThreadPool({
    threads: 2,
    clock,
    logger: silentLogger,
    metrics,
    output: { write: () => undefined, dropped: () => 0, flushSync: () => undefined },
    memory: createSharedMemory(1_000_000),
    store: createConfigurableStore({ clock, logger: silentLogger, metrics, memory }),
    sockets: [],
    budget: memory,
    data: {} as ThreadData,
    texts: () => [{ file: "config.yaml", text }],
    logFilter: () => "info",
    endpoints: () => [],
    start({ thread }) {
      const worker = new FakeWorker();
      if (workers.length >= 2) worker.hangsAt = replacementHangsAt;
      workers.push({ number: thread, worker });
      return worker as unknown as Worker;
    },
    history: () => undefined,
    audit: () => undefined,
  });
  const reload = (next: string): Promise<void> => {
    text = next;
    return pool.apply({ listeners: [] });
  };
  return { clock, workers, reload, close: (limitMs = 0) => pool.close(limitMs) };
}

for (const kind of ["prepare", "commit"] as const)
  test(`a reload succeeds if a thread dies when it gets the order to ${kind}`, async (t) => {
    const { workers, reload, close } = setUp();
    t.after(() => close());
    await reload("first");
    const [first, second] = workers.map(({ worker }) => worker);
    assert.ok(first && second);
    first.diesOf = kind;
    await reload("second");
    assert.deepEqual(second.orders.slice(2), ["prepare second", "commit"]);
    // The next reload waits for the replacement.
    await reload("third");
    assert.deepEqual([workers[2]?.number, workers[2]?.worker.orders.slice(0, 2)], [1, ["prepare second", "commit"]]);
  });

for (const [kind, limitMs] of [
  ["drain", 3_000 + 2_000],
  ["end", 10_000],
] as const)
  test(`a shutdown terminates a thread that hangs when it gets the order to ${kind}`, async () => {
    const { clock, workers, reload, close } = setUp();
    await reload("first");
    const [first, second] = workers.map(({ worker }) => worker);
    assert.ok(first && second);
    first.hangsAt = kind;
    const closed = close(3_000);
    await untilIdle();
    await clock.advance(limitMs - 1);
    assert.deepEqual([first.isTerminated, second.isTerminated], [false, false]);
    await clock.advance(1);
    await closed;
    assert.deepEqual([first.isTerminated, second.isTerminated], [true, true]);
    assert.deepEqual(second.orders.slice(-2), ["drain", "end"]);
  });

test("a shutdown ends a thread that hangs as a replacement", async () => {
  const { workers, reload, close } = setUp("prepare");
  await reload("first");
  workers[0]?.worker.emit("exit", 1);
  await untilIdle();
  assert.equal(workers.length, 3);
  await close();
  assert.equal(workers[2]?.worker.isTerminated, true);
});

async function untilIdle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}
