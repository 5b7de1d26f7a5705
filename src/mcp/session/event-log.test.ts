import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryAccount, MemoryPool } from "../../base/memory-budget.ts";
import { EventLog, eventId, eventSuffix, parseEventId } from "./event-stream.ts";

function account(limitBytes = 100_000_000): MemoryAccount {
  return new MemoryAccount(new MemoryPool(limitBytes, limitBytes), "client");
}

function event(stream: number, number: number, bytes = 10, atMs = 0) {
  return { stream, number, suffix: "", pieces: [Buffer.alloc(bytes)], atMs };
}

test("the events of one stream after a number, oldest first", () => {
  const log = new EventLog(account());
  for (const [stream, number] of [
    [1, 1],
    [2, 1],
    [1, 2],
    [1, 3],
  ] as const) {
    log.append(event(stream, number));
  }
  assert.deepEqual(
    log.after(1, "", 1).map((one) => one.number),
    [2, 3],
  );
  assert.deepEqual(log.after(3, "", 0), []);
});

test("it is bounded in number and in bytes, but the newest always stays [P5]", () => {
  const log = new EventLog(account());
  for (let i = 1; i <= 1000; i++) log.append(event(1, i));
  assert.ok(log.size <= 256);
  assert.equal(log.after(1, "", 0).at(-1)?.number, 1000);
  log.append(event(1, 1001, 5_000_000));
  assert.deepEqual(
    log.after(1, "", 0).map((one) => one.number),
    [1001],
  );
});

test("old events are dropped", () => {
  const log = new EventLog(account());
  log.append(event(1, 1, 10, 0));
  log.append(event(1, 2, 10, 50_000));
  log.expire(60_001);
  assert.deepEqual(
    log.after(1, "", 0).map((one) => one.number),
    [2],
  );
});

test("an event id is read back", () => {
  assert.deepEqual(parseEventId(eventId(12, 7)), { stream: 12, number: 7 });
  assert.deepEqual(parseEventId(eventId(12, 7, "-n5", true)), { stream: 12, number: 7, isLast: true, answers: "5" });
  for (const answers of ["5", "-3", '"abc"', '"a \\"quoted\\" ä one"'])
    assert.deepEqual(parseEventId(eventId(12, 7, eventSuffix(answers))), { stream: 12, number: 7, answers });
  for (const answers of [undefined, "1.5e3", "9".repeat(20), `"${"x".repeat(200)}"`])
    assert.deepEqual(parseEventId(eventId(12, 7, eventSuffix(answers))), { stream: 12, number: 7 });
  // Whoever makes one up gets nothing into a message.
  for (const forged of ['{"a":1}', '"a","error":1', "null"])
    assert.equal(parseEventId(`1-1-s${Buffer.from(forged).toString("base64url")}`)?.answers, undefined);
});

for (const text of ["", "1", "1-", "-1", "a-1", "1-1-1", "1-1 ", `${"9".repeat(30)}-1`, "../1-1"]) {
  test(`${JSON.stringify(text)} is no event id`, () => {
    assert.equal(parseEventId(text), undefined);
  });
}

test("logs of all sessions share a limit: older events make room, and what does not fit is not logged [R50]", () => {
  const pool = new MemoryPool(1_000, 1_000);
  const [one, other] = [new MemoryAccount(pool, "a"), new MemoryAccount(pool, "a")];
  const log = new EventLog(one);
  for (let i = 1; i <= 20; i++) log.append(event(1, i, 100));
  assert.equal(pool.usedBytes, 1_000);
  assert.equal(log.after(1, "", 0).length, 10);
  const second = new EventLog(other);
  second.append(event(1, 1, 100));
  assert.equal(second.size, 0);
  log.expire(60_001);
  assert.equal(pool.usedBytes, 0);
  second.append(event(1, 2, 100));
  assert.equal(second.size, 1);
  other.close();
  assert.equal(pool.usedBytes, 0);
});
