/**
 * Rules decide about the request that the backend reads: a small part of `npm run test:differential`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { runDifferential } from "../differential/run.ts";

for (const [backend, seed] of [
  ["node", 1],
  ["python", 2],
] as const)
  test(`a rule comes to the same verdict about a request and about what a ${backend} server reads of it [L16]`, async (t) => {
    const { findings, counts, skipped } = await runDifferential({
      backends: [backend],
      count: 240,
      seed,
      connections: 4,
    });
    if (skipped.length > 0) {
      t.skip(skipped.join(", "));
      return;
    }
    assert.deepEqual(findings, []);
    // Each outcome must occur, or nothing was compared.
    for (const outcome of ["allowed", "denied", "refused"])
      assert.ok((counts.get(`${backend} ${outcome}`) ?? 0) > 20, `${outcome}: ${[...counts].join(" ")}`);
  });
