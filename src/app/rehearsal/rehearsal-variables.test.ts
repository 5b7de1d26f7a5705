import assert from "node:assert/strict";
import { test } from "node:test";
import { valuesIn, variablesForRehearsal, withoutVariables } from "./rehearse.ts";

const source = (text: string) => [{ file: "a.yaml", text }];
const ENVIRONMENT = { KEY: 'Sk-12"345678', PORT: "3000", OTHER: "hidden-value", N: "1" };

test("a variable that the running configuration does not name is not looked up; one that is not set stays so", () => {
  const after = source("a: ${KEY} ${OTHER} ${MISSING}");
  const { environment, unnamed } = variablesForRehearsal(source("a: ${KEY}"), after, ENVIRONMENT);
  assert.deepEqual([environment.KEY, environment.OTHER, environment.MISSING], [ENVIRONMENT.KEY, "OTHER", undefined]);
  assert.deepEqual(unnamed, ["OTHER"]);
  // What the text says of itself, and what its author may say in a comment.
  assert.deepEqual(variablesForRehearsal(source("a: $${OTHER}"), after, ENVIRONMENT).unnamed, ["KEY", "OTHER"]);
});

test("values are hidden in every text: whole, in lower case, quoted, and where a text was cut", () => {
  const values = valuesIn(source("${KEY} ${PORT} ${N} ${MISSING}"), ENVIRONMENT);
  const seen = {
    rule: 'jwt.sub == "Sk-12"345678"',
    header: 'x-sk-12"345678',
    quoted: ['is "Sk-12\\"345678"', { cut: "the rule Sk-12" }],
    one: 1,
    none: null,
    short: "1 of 3",
    port: "127.0.0.1:3000",
  };
  assert.deepEqual(withoutVariables(seen, values), {
    rule: 'jwt.sub == "${KEY}"',
    header: "x-${KEY}",
    quoted: ['is "${KEY}"', { cut: "the rule ${KEY}" }],
    one: 1,
    none: null,
    short: "1 of 3",
    port: "127.0.0.1:${PORT}",
  });
});
