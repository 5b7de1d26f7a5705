/**
 * The specification is held by tests: every listed statement is claimed by the name of at least one test, and no test
 * claims a statement that is not listed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { STATEMENT_GROUPS, STATEMENTS } from "./spec/statements.ts";
import { claimsOf, collectClaims, isStatement } from "./threats/claims.ts";

const claims = collectClaims(process.cwd()).filter(({ id }) => isStatement(id));

test("every statement of the specification has a test", () => {
  const claimed = new Set(claims.map(({ id }) => id));
  const missing = [...STATEMENTS].filter(([id]) => !claimed.has(id)).map(([id, sentence]) => `${id}: ${sentence}`);
  assert.deepEqual(missing, []);
});

test("no test claims a statement that is not listed", () => {
  const unknown = claims.filter(({ id }) => !STATEMENTS.has(id));
  assert.deepEqual(
    unknown.map(({ id, file, name }) => `${id} in ${file}: ${name}`),
    [],
  );
});

test("ids name their section, and are there once", () => {
  for (const { title, rows } of STATEMENT_GROUPS) {
    const section = /^(\d(?:\.\d)?)/.exec(title)?.[1];
    for (const id of Object.keys(rows)) assert.ok(id.startsWith(`S${section}-`), `${id} in ${title}`);
  }
  const ids = STATEMENT_GROUPS.flatMap(({ rows }) => Object.keys(rows));
  assert.equal(new Set(ids).size, ids.length);
  assert.ok(ids.length >= 205, "there are some");
});

test("claims of statements and of threats stand side by side", () => {
  const found = claimsOf("x.test.ts", 'test("a [C4] [S2.1-3] [S7-4]", run)').map(({ id }) => id);
  assert.deepEqual(found, ["C4", "S2.1-3", "S7-4"]);
});
