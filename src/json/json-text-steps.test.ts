import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { peerInput } from "../base/peer-inputs.ts";
import { finish } from "../base/sliced-work.ts";
import {
  eachObjectInSteps,
  elements,
  elementsInSteps,
  find,
  findInSteps,
  lineBytesInSteps,
  members,
  membersInSteps,
  occursInSteps,
} from "./json-text.ts";
import { jsonProblem, jsonProblemInSteps } from "./validate-json.ts";

const MESSAGE = peerInput("mcp-server/http-response");

function counted<T>(steps: Generator<undefined, T, undefined>): { readonly value: T; readonly pauses: number } {
  for (let pauses = 0; ; pauses++) {
    const { done, value } = steps.next();
    if (done === true) return { value, pauses };
  }
}

const bytesOf = (text: string): string => {
  const into: Buffer[] = [];
  finish(lineBytesInSteps(text, into));
  return Buffer.concat(into).toString();
};

test("the search in steps finds the same as the search at once, for any JSON", () => {
  const values = fc.dictionary(fc.constantFrom("result", "isError", "a", 'q"\\'), fc.json());
  fc.assert(
    fc.property(values, fc.boolean(), (members, isSpaced) => {
      const inner = `{${Object.entries(members).map(([key, json]) => `${JSON.stringify(key)}${isSpaced ? " :\n " : ":"}${json}`)}}`;
      const text = `{"jsonrpc":"2.0","result":${inner} ,"id":1}`;
      for (const path of [["result"], ["result", "isError"], ["result", "a"], ["nothing"], ["result", "a", "result"]])
        assert.deepEqual(spanOf(finish(findInSteps(text, 0, ...path))), spanOf(find(text, 0, ...path)));
    }),
  );
});

test("elements and members in steps equal those found at once, for any JSON, and large ones pause", () => {
  const pairs = fc.array(fc.tuple(fc.string(), fc.json()), { maxLength: 6 });
  fc.assert(
    fc.property(pairs, fc.boolean(), (all, isSpaced) => {
      const space = isSpaced ? " \n" : "";
      const list = `[${space}${all.map(([, json]) => json).join(`${space},${space}`)}${space}]`;
      const object = `{${space}${all.map(([name, json]) => `${JSON.stringify(name)}${space}:${space}${json}`).join(`${space},${space}`)}}`;
      assert.deepEqual(finish(elementsInSteps(list, 0)), elements(list, 0));
      assert.deepEqual(
        finish(membersInSteps(object, 0)),
        members(object, 0).map(({ key, start, end }) => ({ key, start, end })),
      );
    }),
  );
  const long = `[${Array.from({ length: 50_000 }, (_, i) => `{"a":[${i}]}`).join(",")},[${"{},".repeat(60_000)}1]]`;
  const { value, pauses } = counted(elementsInSteps(long, 0));
  assert.deepEqual(value, elements(long, 0));
  assert.ok(pauses >= long.length / 64 / 1024 - 2);
});

test("reading objects in one pass finds the same elements and members, for any JSON, and large ones pause", () => {
  const read = (text: string) => {
    const found: unknown[] = [];
    const { value: end, pauses } = counted(
      eachObjectInSteps(text, 0, (start, end, own) => found.push({ start, end, own: [...own] })),
    );
    return { found, end, pauses };
  };
  const expected = (text: string) =>
    elements(text, 0).map((span) => ({
      ...span,
      own: members(text, span.start).map(({ key, start, end }) => ({ key, start, end })),
    }));
  fc.assert(
    fc.property(fc.array(fc.json(), { maxLength: 6 }), fc.boolean(), (all, isSpaced) => {
      const space = isSpaced ? " \n" : "";
      const list = `[${space}${all.join(`${space},${space}`)}${space}]`;
      const { found, end } = read(`${list} ,1]`);
      assert.deepEqual(found, expected(list));
      assert.equal(end, list.length);
    }),
  );
  const long = `[${`{"name":"a","of":[{}]},`.repeat(20_000)}{"b":"${"x".repeat(70_000)}","c":[${"{},".repeat(60_000)}1]},2]`;
  const { found, pauses } = read(long);
  assert.deepEqual(found, expected(long));
  assert.ok(pauses >= long.length / 64 / 1024 - 3);
});

function spanOf(span: { readonly start: number; readonly end: number } | undefined) {
  return span && [span.start, span.end];
}

test("bytes in steps equal those of the whole, on one line, wherever they are split", () => {
  for (const unit of ["a", "é", "漢", "🙂", "a🙂", "\ud83d", "x\r\n"]) {
    const text = `${unit.repeat(200_000)}${"y".repeat(3)}`;
    assert.equal(bytesOf(text), Buffer.from(text.replace(/[\r\n]/g, " ")).toString(), JSON.stringify(unit));
  }
});

test("a pattern is found wherever it occurs", () => {
  for (const at of [0, 65_530, 65_535, 65_536, 131_070, 200_000]) {
    const text = `${"x".repeat(at)}"isError"${"x".repeat(70_000)}`;
    assert.equal(finish(occursInSteps(text, /"isError"/, 9)), true, `at ${at}`);
  }
  assert.equal(finish(occursInSteps("x".repeat(200_000), /"isError"/, 9)), false);
});

const long: [name: string, json: string, isValid: boolean][] = [
  ["a string", `"${"x".repeat(300_000)}"`, true],
  ["a string of escapes", `"${"\\n\\u00e9".repeat(60_000)}"`, true],
  ["a string that ends in an escape", `"${"x".repeat(300_000)}\\`, false],
  ["a string without an end", `"${"x".repeat(300_000)}`, false],
  ["a string with a line break at its end", `"${"x".repeat(300_000)}\n"`, false],
  ["a string with a broken escape at its end", `"${"\\n".repeat(100_000)}\\x"`, false],
  ["numbers", `[${"1,".repeat(100_000)}1]`, true],
  ["numbers with one that is none", `[${"1,".repeat(100_000)}01]`, false],
  ["objects", `[${'{"a":1},'.repeat(50_000)}{}]`, true],
  ["names", `{${Array.from({ length: 30_000 }, (_, i) => `"k${i}":1`)}}`, true],
  ["names with one that is repeated", `{${Array.from({ length: 30_000 }, (_, i) => `"k${i}":1`)},"k0":1}`, false],
];
for (const [name, json, isValid] of long) {
  test(`long strings are checked in many steps: ${name}`, () => {
    const { value, pauses } = counted(jsonProblemInSteps(MESSAGE, json));
    assert.equal(value === undefined, isValid, value);
    let isParsed = true;
    try {
      JSON.parse(json);
    } catch {
      isParsed = false;
    }
    assert.equal(isParsed, isValid || json.includes('"k0":1}'));
    assert.ok(pauses > json.length / 80_000, `${pauses} pauses`);
  });
}

test("the names of one object are limited, since all are kept until it ends", () => {
  const names = (count: number) => Array.from({ length: count }, (_, i) => `"k${i}":1`).join(",");
  assert.equal(jsonProblem(MESSAGE, `{${names(200_000)}}`), undefined);
  assert.equal(jsonProblem(MESSAGE, `[{${names(150_000)}},{${names(150_000)}}]`), undefined);
  assert.match(jsonProblem(MESSAGE, `{${names(200_001)}}`) ?? "", /more than 200000 names in one object/);
});

test("names and numbers are limited, since no step ends within them", () => {
  const limit = 64 * 1024;
  assert.equal(jsonProblem(MESSAGE, `{"${"k".repeat(limit - 10)}":1}`), undefined);
  assert.match(jsonProblem(MESSAGE, `{"${"k".repeat(limit + 10)}":1}`) ?? "", /a name or a number of more than 65536/);
  assert.equal(jsonProblem(MESSAGE, `[${"1".repeat(limit)}]`), undefined);
  assert.match(jsonProblem(MESSAGE, `[${"1".repeat(limit + 10)}]`) ?? "", /a name or a number of more than 65536/);
  assert.match(jsonProblem(MESSAGE, `[1.${"1".repeat(limit + 10)}]`) ?? "", /a name or a number of more than 65536/);
});

test("a long string with escapes is passed over in steps, and ends where it ends at once", () => {
  for (const unit of ['\\"', "\\\\", "\\n", '\\\\\\"', "\\u0022"]) {
    const text = `{"a":"${unit.repeat(200_000)}","b":["${unit.repeat(100_000)}"],"c":1}`;
    for (const key of ["a", "b", "c"]) {
      const { value, pauses } = counted(findInSteps(text, 0, key));
      assert.deepEqual(spanOf(value), spanOf(find(text, 0, key)));
      assert.equal(value && key === "c" ? text.slice(value.start, value.end) : "1", "1");
      if (unit.includes('"')) assert.ok(pauses >= (200_000 * unit.length) / 64 / 1024 - 1, `${pauses} pauses`);
    }
  }
});
