import assert from "node:assert/strict";
import { test } from "node:test";
import { cpuMs } from "../../../test/support/cpu-time.ts";
import { compileExpression } from "../expression.ts";
import { plainAttributes } from "../values/attribute-source.ts";
import { COST_EXCEEDED } from "./budget.ts";

const many = Array.from({ length: 100_000 }, (_, index) => index);
const texts = many.map((index) => `item ${index}`);
const objects = Array.from({ length: 2_000 }, (_, id) => ({ id, tags: ["x", { y: id }] }));
/** So that a pattern that remembers what it read needs a state for each place of it. */
function noise(length: number): string {
  let seed = 1;
  return Array.from({ length }, () => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed & 0x10000) === 0 ? "a" : "b";
  }).join("");
}

const attributes = {
  request: {
    many,
    texts,
    objects,
    body: "ab ".repeat(500_000),
    noise: noise(60_000),
  },
};

const bombs = [
  "request.many.all(x, request.many.all(y, x + y >= 0))",
  "request.many.all(x, request.many.all(y, x + y >= 0)) || true",
  "default(request.many.all(x, request.many.all(y, true)), true)",
  "request.many.map(x, request.many.map(y, [x, y]))",
  "request.objects.all(x, request.objects.exists(y, x == y))",
  "request.objects.all(x, request.objects == request.objects)",
  "request.texts.all(x, x in request.texts)",
  "request.texts.all(x, request.body.contains(x))",
  "request.texts.all(x, request.body.lowerAscii().contains(x))",
  "request.objects.all(x, sha256.encode(request.body) != '')",
  "request.texts.all(x, request.missing.field == 1 || true)",
  "request.noise.matches('(a|b)*a(a|b){200}[cd]$')",
  "request.body.regexReplace('(a)(b)', '$2$1')",
  "request.texts.all(x, x.matches('(' + x + ')+'))",
  "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, a+b+c+d+e+f > 0))))))",
];
for (const source of bombs) {
  test(`stops ${source.slice(0, 70)} [E1]`, () => {
    const expression = compileExpression(source);
    const before = cpuMs();
    assert.deepEqual(expression.evaluate(plainAttributes(attributes)), { ok: false, error: COST_EXCEEDED });
    // CPU time, not the clock: the aim is 50 ms, unbounded it would be minutes, and machines differ.
    assert.ok(cpuMs() - before < 1_500, `took ${cpuMs() - before} ms of CPU`);
  });
}

const affordable = [
  { source: "request.many.size() == 100000", value: true },
  { source: "99999 in request.many", value: true },
  { source: "request.objects.filter(x, x.id < 3).map(x, x.id)", value: [0, 1, 2] },
  { source: "request.objects.all(x, x.tags[0] == 'x')", value: true },
  { source: "request.body.replace('a', 'bb').size()", value: 2_000_000 },
  { source: "request.body.contains('c')", value: false },
  { source: "request.body.matches('zebra')", value: false },
  { source: "request.body.matches('(a+)+c?$')", value: false },
  { source: "request.body.matches('[0-9]{3}-[0-9]{4}')", value: false },
  { source: "request.texts == request.texts", value: true },
];
for (const { source, value } of affordable) {
  test(`affords ${source}`, () => {
    assert.deepEqual(compileExpression(source).evaluate(plainAttributes(attributes)), { ok: true, value });
  });
}

test("every evaluation has the whole budget again", () => {
  const expression = compileExpression("request.list.all(x, request.list.all(y, x >= 0 && y >= 0))");
  const list = many.slice(0, 90);
  for (let round = 0; round < 5; round++) {
    assert.deepEqual(expression.evaluate(plainAttributes({ request: { list } })), { ok: true, value: true });
    assert.equal(expression.evaluate(plainAttributes({ request: { list: many } })).ok, false);
  }
});

test("a text that would grow beyond all bounds is an error", () => {
  const result = compileExpression("request.body.replace('a', request.body)").evaluate(plainAttributes(attributes));
  assert.match(result.ok ? "" : result.error, /longer than/);
});

test("a JSON text of too many values is an error, a long one of few is not", () => {
  const expression = compileExpression("json(request.body).size()");
  const many = expression.evaluate(plainAttributes({ request: { body: `[${"1,".repeat(100_001)}1]` } }));
  assert.match(many.ok ? "" : many.error, /^json: the text has more than 100000 values and names$/);
  const long = expression.evaluate(plainAttributes({ request: { body: `["${"a,[{".repeat(300_000)}", 2]` } }));
  assert.deepEqual(long, { ok: true, value: 2 });
});
