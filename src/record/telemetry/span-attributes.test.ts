import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange } from "../../../test/support/exchange.ts";
import { createMetrics } from "../log/metrics.ts";
import { createRedaction } from "../trace/redact.ts";
import { compileSpanAttributes } from "./request-spans.ts";

const MAX_COUNT = 128;
const MAX_CHARS = 128 * 1024;

function addedFrom(claim: unknown) {
  const exchange = anAnsweredExchange({});
  exchange.attributes.jwt = { claim };
  const { of } = compileSpanAttributes({ a: "jwt.claim" }, createRedaction([]), createMetrics());
  return of(exchange);
}

/** Arrays in arrays, as many as a client's token or body can hold. */
function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}

const LARGE: Readonly<Record<string, unknown>> = {
  "a long text": "x".repeat(1_000_000),
  "many members": Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`k${i}`, i])),
  "many texts": Array.from({ length: 10_000 }, () => "y".repeat(1_000)),
  "a long name": { ["n".repeat(1_000_000)]: 1 },
  "many long names": Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`${i}${"n".repeat(10_000)}`, i])),
  "long texts in many members": Object.fromEntries(
    Array.from({ length: 200 }, (_, i) => [`k${i}`, "z".repeat(20_000)]),
  ),
  "deep lists": nested(30),
};
for (const [what, claim] of Object.entries(LARGE))
  test(`attributes of a span are bounded in number and size: ${what}`, () => {
    const { attributes, omitted } = addedFrom(claim);
    const entries = Object.entries(attributes);
    assert.ok(entries.length <= MAX_COUNT);
    assert.ok(JSON.stringify(entries).length <= MAX_CHARS + entries.length * 16);
    if (what !== "a long text") assert.ok(omitted > 0);
  });

test("maps become one attribute for each member, with credentials redacted", () => {
  const { attributes, omitted } = addedFrom({ team: "a", roles: ["x", "y"], nested: { password: "p", level: 3 } });
  assert.deepEqual(attributes, {
    "a.team": "a",
    "a.roles": ["x", "y"],
    "a.nested.password": "<redacted>",
    "a.nested.level": 3,
  });
  assert.equal(omitted, 0);
});
