import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Random } from "../../test/support/random.ts";
import { isHeaderName } from "../base/header-names.ts";
import { areHeaderLines, HeaderList, isHeaderValue } from "./headers.ts";

const SEED = Number(process.env.FAST_CHECK_SEED ?? 1);

test("repeats are kept in order and joined when read", () => {
  const list = HeaderList.fromRaw(["X-A", "1", "B", "2", "x-a", "3"]);
  assert.equal(list.get("x-a"), "1, 3");
  assert.deepEqual(list.getAll("x-a"), ["1", "3"]);
  assert.deepEqual([...list.names()], ["x-a", "b"]);
  assert.deepEqual({ ...list.toObject() }, { "x-a": ["1", "3"], b: "2" });
  assert.equal(list.get("none"), undefined);
});

test("set replaces all lines of a name at the place of the first, delete removes all", () => {
  const list = new HeaderList(["a", "1", "b", "2", "a", "3", "a", "4"]);
  list.set("a", "x");
  assert.deepEqual(list.pairs, ["a", "x", "b", "2"]);
  list.set("c", "new");
  list.delete("a");
  assert.deepEqual(list.pairs, ["b", "2", "c", "new"]);
});

/** The same name in a spelling that a client may use. */
function spellingOf(name: string): fc.Arbitrary<string> {
  const letters = [...name].map((letter) =>
    letter === "-" ? fc.constantFrom(..."-_.~!#$%&'*+^`|") : fc.constant(letter),
  );
  return fc.tuple(...letters).map((parts) => parts.join(""));
}

const ASSERTED = "x-user-id";
const line = fc.tuple(
  fc.oneof(spellingOf(ASSERTED), fc.constantFrom("x-user", "x-user-ids", "y-user-id", "host", "x_other")),
  fc.constantFrom("a", "b", ""),
);

/** Reads a list like CGI, WSGI and PHP: one variable for all spellings. */
function variableOf(list: HeaderList, name: string): string[] {
  const folded = (text: string): string => text.toUpperCase().replace(/[^A-Z0-9]/g, "_");
  return list.pairs.filter((_, i) => i % 2 === 1 && folded(list.pairs[i - 1] as string) === folded(name));
}

test("a server that folds names reads the asserted value or nothing, whatever the list contained [L18]", () => {
  fc.assert(
    fc.property(
      fc.array(line, { maxLength: 12 }),
      fc.option(fc.constant("ours"), { nil: undefined }),
      (lines, value) => {
        const others = lines.filter(([name]) => name.replace(/[^a-z0-9]/g, "-") !== ASSERTED).flat();
        const list = new HeaderList(lines.flat());
        list.assert(ASSERTED, value);
        assert.deepEqual(variableOf(list, ASSERTED), value === undefined ? [] : [value]);
        assert.equal(list.isAmbiguous(ASSERTED), false);
        list.delete(ASSERTED);
        assert.deepEqual(list.pairs, others, "nothing else is lost or moved");

        const appended = new HeaderList(lines.flat());
        const own = appended.getAll(ASSERTED);
        appended.append(ASSERTED, value);
        assert.deepEqual(variableOf(appended, ASSERTED), value === undefined ? own : [...own, value]);

        const read = new HeaderList(lines.flat());
        const spellings = lines.filter(([name]) => name.replace(/[^a-z0-9]/g, "-") === ASSERTED);
        assert.equal(read.isAmbiguous(ASSERTED), spellings.length > 1 || spellings.some(([name]) => name !== ASSERTED));
      },
    ),
    { seed: SEED, numRuns: 500 },
  );
});

test("of entries that are spellings of one header the last counts", () => {
  assert.deepEqual(HeaderList.of({ "X-A": "1", x_a: "2", "x-b": "3", "x-A": "4" }).pairs, ["x-a", "4", "x-b", "3"]);
});

test("a copy is independent", () => {
  const list = new HeaderList(["a", "1"]);
  list.clone().set("a", "2");
  assert.equal(list.get("a"), "1");
});

test("hop-by-hop headers and those named by connection are removed, except kept ones", () => {
  const list = new HeaderList([
    "connection",
    "close, X-Hop, host",
    "x-hop",
    "1",
    "host",
    "a",
    "keep-alive",
    "x",
    "te",
    "x",
    "transfer-encoding",
    "chunked",
    "upgrade",
    "x",
    "proxy-connection",
    "x",
    "trailer",
    "x",
    "x-kept",
    "1",
  ]);
  list.removeHopByHop(new Set(["host"]));
  assert.deepEqual(list.pairs, ["host", "a", "x-kept", "1"]);
});

test("names like those of an object's methods are valid names", () => {
  const list = new HeaderList(["__proto__", "1", "constructor", "2", "tostring", "3"]);
  assert.deepEqual(Object.keys(list.toObject()).sort(), ["__proto__", "constructor", "tostring"]);
});

for (const [text, valid] of [
  ["x-a", true],
  ["X_a.1!", true],
  ["", false],
  ["a b", false],
  ["a:", false],
  ["ä", false],
  ["a\n", false],
] as const) {
  test(`${JSON.stringify(text)} is ${valid ? "a" : "no"} header name`, () => assert.equal(isHeaderName(text), valid));
}
for (const [text, valid] of [
  ["", true],
  ["a b\tc", true],
  ["\xff", true],
  ["a\r\nb", false],
  ["a\0", false],
  ["\u20ac", false],
  ["\x7f", false],
] as const) {
  test(`${JSON.stringify(text)} is ${valid ? "a" : "no"} header value`, () => assert.equal(isHeaderValue(text), valid));
}

const NAMES = ["x-a", "host", "x-gateway-error", "bad name", "x\r\ny", ""];
const VALUES = ["1", "", "a\tb", "\xff", "a\r\nb: c", "a\nb", "a\r", "\0", "\x7f", "\u010a", "a, \u2028"];

test("a test of all lines at once gives the verdict of a test of each line", () => {
  const part = fc.constantFrom("a: b", "\r\n", "\r", "\n", "\t", "\0", "\x1f", "\x7f", "\x80", "\xff", "\u0100", "");
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      const text = parts.join("");
      assert.equal(areHeaderLines(text), text.split("\r\n").every(isHeaderValue));
    }),
  );
});

test("[L1] a list that counts as safe has no line that could end early, after any operations", () => {
  const numbers = new Random(7);
  const random = (below: number): number => numbers.int(below);
  const outcomes = { safe: 0, unsafe: 0 };
  for (let round = 0; round < 2000; round++) {
    let list = new HeaderList(["host", "a", "connection", "x-a"], true);
    for (let step = random(6); step > 0; step--) {
      // Mostly valid values, because one invalid value makes the list unsafe permanently.
      const name = NAMES[random(random(4) === 0 ? NAMES.length : 3)] as string;
      const value = VALUES[random(random(4) === 0 ? VALUES.length : 4)] as string;
      const act = random(7);
      if (act === 0) list.add(name, value);
      else if (act === 1) list.set(name, value);
      else if (act === 2) list.delete(name);
      else if (act === 3) list.removeHopByHop();
      else if (act === 4) list = list.clone();
      else if (act === 5) {
        const other = new HeaderList();
        other.add(name, value);
        list.addFrom(other, 0);
      } else list = HeaderList.of({ [name]: value });
    }
    const isValid = list.pairs.every((text, i) => (i % 2 === 0 ? isHeaderName(text) : isHeaderValue(text)));
    if (list.isSafe) assert.ok(isValid, JSON.stringify(list.pairs));
    outcomes[list.isSafe ? "safe" : "unsafe"] += 1;
  }
  assert.ok(outcomes.safe > 200 && outcomes.unsafe > 200);
});

test("unchecked lines do not count as safe", () => {
  assert.equal(new HeaderList(["x-a", "1"]).isSafe, false);
  assert.equal(HeaderList.fromRaw(["X-A", "1"]).isSafe, false);
});
