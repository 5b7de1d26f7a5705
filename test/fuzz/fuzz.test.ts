/**
 * Every case that was a fault once, every seed, and about a second of each target with a fixed seed; and the driver
 * itself, against a target that is wrong.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { corpusFolder, readCase, readFound, readSeeds, writeFound } from "./corpus.ts";
import { runTarget } from "./run.ts";
import { type Case, defineTarget, expect } from "./target.ts";
import { targets } from "./targets.ts";

test("there are targets, each with a name of its own", () => {
  assert.ok(targets.length >= 14);
  assert.equal(new Set(targets.map(({ name }) => name)).size, targets.length);
});

for (const target of targets) {
  test(`${target.name}: what was found once is not found again`, async () => {
    for (const { file, input } of readFound(corpusFolder(target.name)))
      await assert.doesNotReject(async () => target.run(input), file);
  });

  test(`${target.name}: the corpus and a second of new cases`, async () => {
    const { finding, outcomes } = await runTarget(target, {
      seed: 1,
      maxCases: target.smokeCases,
      corpus: readSeeds(corpusFolder(target.name)),
    });
    assert.equal(finding, undefined, finding && `${finding.message}\n${JSON.stringify(finding.input).slice(0, 2000)}`);
    assert.ok(outcomes > 1, "the cases reach different ends");
  });
}

const wrong = defineTarget<Buffer>({
  name: "wrong",
  seeds: [Buffer.from("a fine beginning")],
  smokeCases: 1,
  generate: (random) => Buffer.from(random.text(["a", "b", "!", "?"], 30)),
  run(bytes) {
    const at = bytes.indexOf("!");
    expect(at < 0 || bytes.indexOf("?", at) < 0, "a question after an exclamation");
    return "fine";
  },
});

test("the driver finds what is wrong, makes it small and writes it to a file", async () => {
  const { finding } = await runTarget(wrong, { seed: 7, maxCases: 10_000 });
  assert.ok(finding);
  assert.equal((finding.input as Buffer).toString(), "!?");
  assert.match(finding.message, /a question after/);

  const folder = mkdtempSync(join(tmpdir(), "fuzz-"));
  try {
    const path = writeFound(folder, finding.input);
    assert.deepEqual(readCase(path), finding.input);
    assert.deepEqual(
      readFound(folder).map(({ input }) => input),
      [finding.input],
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the same seed makes the same run", async () => {
  const seen: Case[][] = [[], []];
  for (const cases of seen) {
    const target = defineTarget<Case>({
      ...wrong,
      run(input) {
        cases.push(input);
        return String((input as Buffer).length);
      },
    });
    await runTarget(target, { seed: 3, maxCases: 500 });
  }
  assert.deepEqual(seen[0], seen[1]);
});
