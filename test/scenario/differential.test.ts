/**
 * Rules decide about the request that the backend reads: a small part of `npm run test:differential`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { HEAD_ROWS, runHeads } from "../differential/heads.ts";
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

test("a head gets the same verdict, and reaches the backend as the same request, through every way into the gateway", async () => {
  const { findings, counts } = await runHeads({ backends: ["node"], count: 80, seed: 1, connections: 4 });
  assert.deepEqual(findings, []);
  for (const outcome of ["h1 accepted", "h1 bad_request", "h2c same", "h2 same", "admin same"])
    assert.ok((counts.get(outcome) ?? 0) > 10, `${outcome}: ${[...counts].join(" ")}`);
  assert.ok(HEAD_ROWS.length <= 15);
});
