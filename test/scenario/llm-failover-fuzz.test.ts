/**
 * The failover fuzz with fixed seeds. By hand, for longer: FUZZ_COUNT=2000 FUZZ_SEED=7 npm test -- test/scenario/llm-failover-fuzz
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fuzzFailover } from "../fuzz/failover.ts";

const count = Number(process.env.FUZZ_COUNT ?? 60);
const seeds = process.env.FUZZ_SEED === undefined ? [1, 2] : [Number(process.env.FUZZ_SEED)];

for (const seed of seeds) {
  test(`${count} cases of seed ${seed}: one answer of one provider, one charge, nothing left open`, async () => {
    assert.deepEqual(await fuzzFailover({ count, seed }), []);
  });
}
