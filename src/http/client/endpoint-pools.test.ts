import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import type { HttpPool } from "../http-client.ts";
import { openEndpointPools } from "./endpoint-pools.ts";

const ADDRESSES = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];
const pool = { connections: () => ({ open: 0, idle: 0 }), close: () => undefined } as unknown as HttpPool;

test("the preferred address is used unless it is gone, or ejected while others are not", () => {
  const pools = openEndpointPools(
    { protocol: "http", egress: EgressGuard.for("configuration") },
    fakeClock(),
    undefined,
    () => pool,
  );
  const next = (preferred?: string, addresses = ADDRESSES) => pools.next(addresses, preferred);
  assert.deepEqual(
    [0, 1, 2].map(() => next("10.0.0.2:80")?.address),
    Array(3).fill("10.0.0.2:80"),
  );
  assert.deepEqual([0, 1, 2].map(() => next()?.address).sort(), ADDRESSES);
  assert.notEqual(next("10.9.9.9:80"), undefined, "an address that is not in the list");
  assert.notEqual(next("10.9.9.9:80")?.address, "10.9.9.9:80");
  next("10.0.0.2:80")?.health.failed("refused");
  assert.notEqual(next("10.0.0.2:80")?.address, "10.0.0.2:80");
  next("10.0.0.1:80")?.health.failed("refused");
  next("10.0.0.3:80")?.health.failed("refused");
  assert.equal(next("10.0.0.2:80")?.address, "10.0.0.2:80", "all are ejected");
});
