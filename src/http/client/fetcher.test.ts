import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { type Clock, systemClock } from "../../base/clock.ts";
import { Owner } from "../../base/owner.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { EgressGuard } from "../egress-guard.ts";
import { openFetcher } from "./fetcher.ts";

const LIMITS = { timeoutMs: 5_000, input: peerInput("alert-service/response").upTo(1_000) };

test("owners do not share connections, and the documents of a namespace do", async (t) => {
  let connections = 0;
  const server = createServer((_request, response) => response.end("ok")).on("connection", () => {
    connections += 1;
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => server.close());
  const fetcher = openFetcher(systemClock, EgressGuard.for("configuration"));
  t.after(() => fetcher.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const seen: number[] = [];
  for (const owner of [
    Owner.standalone,
    Owner.ofNamespace("a"),
    Owner.ofDocument({ namespace: "a", kind: "Backend", name: "x" }),
    Owner.ofDocument({ namespace: "b", kind: "Backend", name: "x" }),
    Owner.standalone,
  ]) {
    assert.equal((await fetcher.of(owner)({ ...LIMITS, url })).status, 200);
    seen.push(connections);
  }
  assert.deepEqual(seen, [1, 2, 2, 3, 3]);
});

test("pools of servers that are not called anymore are closed", async () => {
  let pools = 0;
  const clock: Clock = {
    ...systemClock,
    now: () => systemClock.now(),
    monotonicMs: () => systemClock.monotonicMs(),
    after: (ms, action) => systemClock.after(ms, action),
    every(ms, action) {
      pools += 1;
      const timer = systemClock.every(ms, action);
      return {
        cancel() {
          pools -= 1;
          timer.cancel();
        },
      };
    },
  };
  const fetcher = openFetcher(clock, EgressGuard.for("document"));
  let most = 0;
  for (let i = 0; i < 1_000; i++) {
    const url = `http://127.0.${i >> 8}.${i & 255}:9/`;
    await assert.rejects(fetcher.of(Owner.ofNamespace("a"))({ ...LIMITS, url }), { reason: "refused" });
    most = Math.max(most, pools);
  }
  assert.ok(most > 1 && most <= 64, `${most} pools`);
  fetcher.close();
  assert.equal(pools, 0);
});
