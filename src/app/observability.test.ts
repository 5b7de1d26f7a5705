import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, finishedRequest } from "../../test/support/exchange.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import type { ProcessSettings } from "../config/prepare.ts";
import { silentLogger } from "../record/log/logger.ts";
import { createTrafficHistory } from "../record/traffic.ts";
import { createMemoryStore } from "../store/memory-store.ts";
import { keepHistory } from "./observability.ts";
import { createShutdown } from "./shutdown.ts";

test("gateways of one host that share a store keep their own statistics over a restart", async () => {
  const clock = fakeClock();
  const store = { ...createMemoryStore(clock), kind: "redis" as const };

  /** Returns the requests in the statistics of a gateway that served so many more and stopped. */
  async function statisticsAfter(adminAddr: string, folder: string, requests: number): Promise<number> {
    const shutdown = createShutdown(clock, silentLogger);
    const history = createTrafficHistory(clock);
    keepHistory(
      { clock, store, logger: silentLogger },
      { process: { adminAddr }, folder } as ProcessSettings,
      history,
      shutdown,
    );
    for (let i = 0; i < requests; i++)
      history.count(finishedRequest(anExchange(), { status: 200, end: "complete", responseBytes: 0 }, 1));
    await shutdown.run(0);
    return history.report(3_600).total.requests;
  }

  assert.equal(await statisticsAfter("127.0.0.1:15000", "/a", 2), 2);
  assert.equal(await statisticsAfter("127.0.0.1:15001", "/a", 3), 3);
  assert.equal(await statisticsAfter("127.0.0.1:15000", "/a", 1), 3);
  assert.equal(await statisticsAfter("127.0.0.1:15001", "/a", 0), 3);
  // Gateways without an admin address differ in their folders.
  assert.equal(await statisticsAfter("off", "/a", 4), 4);
  assert.equal(await statisticsAfter("off", "/b", 5), 5);
  assert.equal(await statisticsAfter("off", "/a", 0), 4);
});
