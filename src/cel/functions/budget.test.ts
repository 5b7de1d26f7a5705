import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
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
    map: Object.fromEntries(texts.slice(0, 600).map((text) => [text, 1])),
    body: "ab ".repeat(500_000),
    noise: noise(60_000),
  },
};

const bombs = [
  "request.many.all(x, request.many.all(y, x + y >= 0))",
  "request.many.all(x, request.many.all(y, x + y >= 0)) || true",
  "default(request.many.all(x, request.many.all(y, true)), true)",
  "request.many.map(x, request.many.map(y, [x, y]))",
  "request.map.all(x, request.map.all(y, x < y || true))",
  ...["exists", "exists_one", "filter", "map"].map(
    (macro) => `request.map.${macro}(x, request.map.exists(y, x < y && false))`,
  ),
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
    // The aim is 50 ms. Without the limit it would be minutes.
    assertCpuBelow(1_500, () =>
      assert.deepEqual(expression.evaluate(plainAttributes(attributes)), { ok: false, error: COST_EXCEEDED }),
    );
  });
}

/**
 * What a client can make an expression do before the budget ends it, as the size of a list. With these sizes no
 * evaluation takes 50 ms of CPU time, also not the first one of a process, when nothing is compiled yet.
 */
const PAIRS = "request.list.all(x, request.list.all(y, ";
const limits: readonly (readonly [source: string, item: (index: number) => unknown, size: number])[] = [
  ['request.texts.split(",").all(a, request.texts.split(",").exists_one(b, a == b))', (i) => `t${i}`, 63],
  ["request.list.all(a, request.list.exists_one(b, a == b))", (i) => `team${i}`, 66],
  [`${PAIRS}x + y >= 0))`, (i) => i, 70],
  ["request.list.map(x, request.list.map(y, [x, y])).size() > 0", (i) => i, 84],
  ['request.list.map(x, request.list.map(y, {"a": x, "b": y})).size() > 0', (i) => i, 74],
  ["request.list.map(x, request.list.map(y, x + y)).size() > 0", (i) => `s${i}`, 72],
  ["request.list.filter(x, request.list.filter(y, y != x).size() > 0).size() > 0", (i) => `s${i}`, 61],
  ["request.list.all(x, request.list.exists(y, x == y))", (i) => ({ id: i, t: ["x", { y: i }] }), 58],
  [`${PAIRS}default(x.q.z, 1) == 1))`, (i) => ({ a: i }), 64],
  [`${PAIRS}x.q == 1 || true))`, (i) => ({ a: i }), 67],
  ['request.list.all(x, timestamp(x) > timestamp("2025-01-01T00:00:00Z"))', () => "2026-01-01T00:00:00Z", 740],
  ['request.list.all(x, timestamp(x).getHours("Europe/Berlin") >= 0)', () => "2026-01-01T00:00:00Z", 47],
  ["request.list.all(x, duration(x) > duration('1s'))", () => "1h2m", 750],
  ['request.list.all(x, cidr("10.0.0.0/8").containsIP(ip(x)))', () => "10.1.2.3", 370],
  ["request.list.all(x, sha256.encode(x) != '')", (i) => `z${i}`, 1_260],
  ["request.list.all(x, toJson(x) != '')", (i) => ({ a: i }), 780],
  ['request.list.all(x, x.split("").size() > 0)', () => "abc".repeat(300), 26],
  ["request.list.all(x, x.lowerAscii() != '')", () => "aB".repeat(4_000), 97],
  ['request.list.all(x, x.replace("a", "bb") != "")', () => "abc".repeat(300), 740],
  ['request.texts.split("").size() > 0', () => "a", 25_000],
];
for (const [source, item, size] of limits)
  test(`a list of about ${size} exhausts ${source}`, () => {
    const expression = compileExpression(source);
    const isAffordable = (count: number): boolean => {
      const list = Array.from({ length: count }, (_, index) => item(index));
      const result = expression.evaluate(plainAttributes({ request: { list, texts: list.join(",") } }));
      if (!result.ok) assert.equal(result.error, COST_EXCEEDED);
      return result.ok;
    };
    assert.ok(isAffordable(Math.floor(size * 0.9)));
    assert.ok(!isAffordable(Math.ceil(size * 1.1)));
  });

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
  const list = many.slice(0, 45);
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
