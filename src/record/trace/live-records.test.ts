import assert from "node:assert/strict";
import { test } from "node:test";
import { formatTraceparent, parseTraceparent, usableTracestate } from "./live-records.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";

test("a traceparent is parsed and formatted", () => {
  const parsed = parseTraceparent(`00-${TRACE}-${SPAN}-01`);
  assert.deepEqual(parsed, { traceId: TRACE, spanId: SPAN, sampled: true });
  assert.equal(parsed && formatTraceparent(parsed), `00-${TRACE}-${SPAN}-01`);
  assert.equal(parseTraceparent(`00-${TRACE}-${SPAN}-02`)?.sampled, false);
  assert.equal(parseTraceparent(`00-${TRACE}-${SPAN}-03`)?.sampled, true);
});

test("the known fields of a later version are parsed", () => {
  assert.equal(parseTraceparent(`cc-${TRACE}-${SPAN}-01-what-comes-later`)?.traceId, TRACE);
  assert.equal(parseTraceparent(`cc-${TRACE}-${SPAN}-01.what`), undefined);
});

test("a malformed traceparent is ignored", () => {
  for (const text of [
    "",
    "00",
    `00-${TRACE}-${SPAN}`,
    `00-${TRACE}-${SPAN}-01-more`,
    `ff-${TRACE}-${SPAN}-01`,
    `00-${"0".repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}x-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-1`,
    ` 00-${TRACE}-${SPAN}-01`,
  ])
    assert.equal(parseTraceparent(text), undefined, text);
});

test("a tracestate that is too long is dropped", () => {
  assert.equal(usableTracestate(undefined), undefined);
  assert.equal(usableTracestate(""), undefined);
  assert.equal(usableTracestate("a=1"), "a=1");
  assert.equal(usableTracestate("a".repeat(8_193)), undefined);
});
