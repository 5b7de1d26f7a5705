/**
 * The threat model is held by tests: every row of the list is claimed by the name of at least one test, and no test
 * claims a row that is not listed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf, collectClaims, isStatement } from "./threats/claims.ts";
import { ROW_GROUPS, ROWS } from "./threats/rows.ts";

const claims = collectClaims(process.cwd()).filter(({ id }) => !isStatement(id));

test("every row of the threat model has a test", () => {
  const claimed = new Set(claims.map(({ id }) => id));
  const missing = [...ROWS.keys()].filter((id) => !claimed.has(id));
  assert.deepEqual(
    missing.map((id) => `${id}: ${ROWS.get(id)}`),
    [],
  );
});

test("no test claims a row that is not listed", () => {
  const unknown = claims.filter(({ id }) => !ROWS.has(id));
  assert.deepEqual(
    unknown.map(({ id, file, name }) => `${id} in ${file}: ${name}`),
    [],
  );
});

test("every row has its own id", () => {
  const ids = ROW_GROUPS.flatMap(({ rows }) => Object.keys(rows));
  assert.equal(new Set(ids).size, ids.length);
});

const sources: [name: string, text: string, found: string[]][] = [
  ["a test", 'test("a [L1]", () => undefined)', ["L1 a"]],
  ["a test with options on the next line", 'test(\n  "a b [L1] [V20]",\n  { skip }', ["L1 a b", "V20 a b"]],
  ["a table", 'const cases = [["one [A1]", 1]];\ntest(`refuses ${name}`, run)', ["A1 one"]],
  ["a name made of parts", "test(`${name} is ${status} [N1]`, run)", ["N1 ${name} is ${status}"]],
  ["no table, so that the text is no name", 'const text = "one [A1]";\ntest("two", run)', []],
  ["ids that stand elsewhere", 'test("[L1] is an id", run)', []],
  ["a test that is never run", 'test.skip("a [L1]", run)', []],
];
for (const [name, text, found] of sources) {
  test(`claims are found in ${name}`, () => {
    assert.deepEqual(
      claimsOf("x.test.ts", text).map(({ id, name: claimed }) => `${id} ${claimed}`),
      found,
    );
  });
}
