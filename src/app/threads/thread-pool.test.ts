import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import type { Worker } from "node:worker_threads";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { createSharedMemory } from "../../base/shared-memory.ts";
import { silentLogger } from "../../observe/log/logger.ts";
import { createMetrics } from "../../observe/log/metrics.ts";
import { createConfigurableStore } from "../../store/open-store.ts";
import type { Order, ThreadData, ToThread } from "./messages.ts";
import { openThreadPool } from "./thread-pool.ts";

/** A thread that reports success, unless it dies of an order. */
class FakeWorker extends EventEmitter {
  readonly orders: string[] = [];
  diesOf: Order["kind"] | undefined = undefined;

  postMessage(message: ToThread): void {
    if (message.kind !== "order") return;
    const { id, order } = message;
    this.orders.push(order.kind === "prepare" ? `prepare ${order.snapshot.texts[0]?.text}` : order.kind);
    if (order.kind === this.diesOf) setImmediate(() => this.emit("exit", 1));
    else setImmediate(() => this.emit("message", { kind: "report", id, report: { ports: new Map() } }));
  }

  async terminate(): Promise<number> {
    this.emit("exit", 1);
    return 1;
  }
}

function setUp() {
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
  return { workers, reload, close: () => pool.close(0) };
}

for (const kind of ["prepare", "commit"] as const)
  test(`a reload succeeds if a thread dies when it gets the order to ${kind}`, async (t) => {
    const { workers, reload, close } = setUp();
    t.after(close);
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
