import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../../test/support/random.ts";
import { finish } from "../base/sliced-work.ts";
import { isLossless } from "./lossless.ts";

const random = new Random(38);
const NAMES = ["a", "b", "content", "__proto__", "constructor", "0", "1", "é", 'a"b', "a\\", "", ":{}"];
const STRINGS = [...NAMES, "{", '{"a":1,"a":2}', "\\", '\\"', '"'.repeat(40), "word ".repeat(20_000)];

/** Writes a string with a random choice of escapes. */
function written(text: string): string {
  const plain = JSON.stringify(text);
  if (random.int(3) > 0 || text.length > 100) return plain;
  return `"${Array.from(text, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`).join("")}"`;
}

const space = (): string => random.pick(["", "", "", " ", "\n\t"]);

/** Returns a JSON text, and whether one of its objects repeats a name. */
function json(depth: number): { text: string; isRepeated: boolean } {
  const kind = depth === 0 ? 0 : random.int(5);
  if (kind <= 1) return { text: random.pick(["1", "-1e3", "true", "null", "[]", "{}"]), isRepeated: false };
  if (kind === 2) return { text: written(random.pick(STRINGS)), isRepeated: false };
  const items = random.list(4, () => json(depth - 1));
  const isRepeated = items.some((item) => item.isRepeated);
  const join = (texts: string[]): string => texts.map((text) => space() + text + space()).join(",");
  if (kind === 3) return { text: `[${join(items.map(({ text }) => text))}]`, isRepeated };
  const names = items.map(() => random.pick(NAMES));
  return {
    text: `{${join(items.map(({ text }, i) => `${written(names[i] as string)}${space()}:${space()}${text}`))}}`,
    isRepeated: isRepeated || new Set(names).size < names.length,
  };
}

test("a text is lossless unless an object repeats a name", () => {
  let repeated = 0;
  for (let i = 0; i < 3000; i++) {
    const { text, isRepeated } = json(5);
    if (isRepeated) repeated += 1;
    assert.equal(finish(isLossless(Buffer.from(text), JSON.parse(text))), !isRepeated, text.slice(0, 500));
  }
  assert.ok(repeated > 100, "some of the generated texts repeat names");
});

test("a text that is not UTF-8 is not lossless", () => {
  const bytes = Buffer.from([0x22, 0x61, 0xff, 0x22]);
  assert.equal(finish(isLossless(bytes, JSON.parse(bytes.toString("utf8")))), false);
});
