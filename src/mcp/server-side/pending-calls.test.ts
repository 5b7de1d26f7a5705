import assert from "node:assert/strict";
import { test } from "node:test";
import { asClientRequest } from "../protocol/json-rpc.ts";
import { CallTable, PendingCall } from "./pending-calls.ts";

function pending(): PendingCall {
  const call = {
    request: asClientRequest("ping", "{}"),
    notified: ignore,
    asked: ignore,
    answered: ignore,
    failed: ignore,
  };
  return new PendingCall(call, 0, { cancel: ignore, reportDefect: ignore });
}

function ignore(): void {
  // Nothing is run here.
}

test("an id is never given twice, and an old one finds nothing", () => {
  const table = new CallTable();
  const seen = new Set<number>();
  let old = 0;
  for (let round = 0; round < 50; round++) {
    const calls = Array.from({ length: (round % 5) + 1 }, pending);
    for (const call of calls) {
      const id = table.add(call);
      assert.ok(!seen.has(id));
      seen.add(id);
      assert.equal(table.get(id), call);
    }
    assert.equal(table.get(old), undefined);
    for (const call of calls) {
      assert.equal(table.take(call.wireId), call);
      assert.equal(table.take(call.wireId), undefined);
      old = call.wireId;
    }
    assert.equal(table.size, 0);
  }
});

test("ids rise by one and pass over an old call; thousands at once are kept apart", () => {
  const table = new CallTable();
  const old = pending();
  table.add(old);
  for (let i = 0; i < 20; i++) table.take(table.add(pending()));
  assert.equal(table.add(pending()), 24, "9 and 17 lie where the first call is");
  const many = Array.from({ length: 5_000 }, pending);
  for (const call of many) table.add(call);
  for (const call of many) assert.equal(table.get(call.wireId), call);
  assert.equal(table.get(old.wireId), old);
  assert.equal(table.all()[0], old);
  assert.equal(table.size, 5_002);
});

test("ids that were never given find nothing", () => {
  const table = new CallTable();
  table.add(pending());
  for (const id of [0, -1, 2, 65_537, Number.NaN, 1.5, Number.MAX_SAFE_INTEGER]) assert.equal(table.get(id), undefined);
});

test("all are taken at once", () => {
  const table = new CallTable();
  const calls = [pending(), pending(), pending()];
  for (const call of calls) table.add(call);
  table.take((calls[1] as PendingCall).wireId);
  assert.deepEqual(table.takeAll(), [calls[0], calls[2]]);
  assert.equal(table.size, 0);
});
