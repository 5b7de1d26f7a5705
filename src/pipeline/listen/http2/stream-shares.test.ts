import assert from "node:assert/strict";
import { test } from "node:test";
import { StreamShares } from "./stream-shares.ts";

test("connections of one address have one share, which is forgotten with the last of them", () => {
  const shares = new StreamShares();
  const first = shares.join("192.0.2.1");
  const second = shares.join("192.0.2.1");
  const mapped = shares.join("::ffff:192.0.2.1");
  const other = shares.join("192.0.2.2");
  assert.equal(first, second);
  assert.equal(first, mapped);
  assert.notEqual(first, other);
  assert.equal(shares.join("2001:db8:1:2::3"), shares.join("2001:db8:1:2:ffff::1"), "one /64 network");
  first.open += 1;
  assert.deepEqual([second.open, other.open, shares.size], [1, 0, 3]);
  first.leave();
  second.leave();
  assert.equal(shares.join("192.0.2.1"), mapped);
  mapped.leave();
  mapped.leave();
  assert.equal(shares.size, 2);
  assert.equal(shares.join("192.0.2.1").open, 0);
});
