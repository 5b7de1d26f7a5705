import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { assertCpuBelow } from "../../test/support/cpu-time.ts";
import { Random } from "../../test/support/random.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { finish } from "../base/sliced-work.ts";
import { readSkeleton, type Skeleton } from "./skeleton.ts";

const TREE = peerInput("client/llm-request-tree");

const NONCE = "0123456789abcdef";
const base64 = (bytes: number): string => Buffer.alloc(bytes, "some bytes of an image").toString("base64");

function read(value: unknown, maxTreeBytes = 1_000_000): Skeleton {
  const skeleton = readSkeleton(TREE.upTo(maxTreeBytes), Buffer.from(JSON.stringify(value)), NONCE);
  if (skeleton === "not JSON" || "tooLarge" in skeleton) throw new Error(JSON.stringify(skeleton));
  return skeleton;
}

test("images are removed from the tree and restored where their marker is", () => {
  const image = base64(50_000);
  const file = base64(30_000);
  const { value, write } = read({ url: `data:image/png;base64,${image}`, other: { data: file }, text: "short" });
  assert.ok(JSON.stringify(value).length < 300);
  assert.match(String(value.url), /^data:image\/png;base64,@blob-/);
  const moved = {
    a: (value.other as { data: string }).data,
    b: String(value.url).slice("data:image/png;base64,".length),
    text: value.text,
  };
  assert.deepEqual(JSON.parse(Buffer.concat(write(moved)).toString()), { a: file, b: image, text: "short" });
});

test("a long string stays in the tree, with its escapes", () => {
  const text = 'A "quoted" line.\n'.repeat(3000);
  const { value, write } = read({ text });
  assert.equal(value.text, text);
  assert.deepEqual(JSON.parse(Buffer.concat(write(value)).toString()), { text });
});

test("text of a client that looks like a marker is preserved", () => {
  const { value, write } = read({ text: "@blob-0000-0@", data: base64(20_000) });
  assert.equal(JSON.parse(Buffer.concat(write(value)).toString()).text, "@blob-0000-0@");
});

test("only what remains counts against the limit", () => {
  assert.ok(read({ data: base64(3_000_000) }, 1000));
  assert.ok(read({ text: "a b ".repeat(1000), "an unknown member": ["c d ".repeat(1000)] }, 1000));
  const tooLarge = { tooLarge: "of more than 1000 bytes besides images and long texts" };
  const names = Buffer.from(JSON.stringify({ ["a b ".repeat(1000)]: 1 }));
  assert.deepEqual(readSkeleton(TREE.upTo(1000), names, NONCE), tooLarge);
  const many = Buffer.from(JSON.stringify(Array.from({ length: 20 }, () => "a b ".repeat(20))));
  assert.deepEqual(readSkeleton(TREE.upTo(1000), many, NONCE), tooLarge);
  assert.equal(readSkeleton(TREE.upTo(1000), Buffer.from("[1]"), NONCE), "not JSON");
});

test("20 MB of images are fast", () => {
  const bytes = Buffer.from(
    JSON.stringify({
      messages: [{ content: Array.from({ length: 4 }, () => ({ url: `data:image/png;base64,${base64(3_750_000)}` })) }],
    }),
  );
  assertCpuBelow(200, () => {
    const skeleton = readSkeleton(TREE.upTo(1000), bytes, NONCE);
    assert.ok(skeleton !== "not JSON" && !("tooLarge" in skeleton));
    assert.equal(Buffer.concat(skeleton.write(skeleton.value)).equals(bytes), true);
  });
});

test("long texts in members that are parsed as JSON count against the limit, but not at the top level", () => {
  const members = new Set(["input"]);
  const text = "a b ".repeat(1000);
  const read = (value: object) => readSkeleton(TREE.upTo(1000), Buffer.from(JSON.stringify(value)), NONCE, members);
  assert.ok("value" in (read({ input: [{ content: text }] }) as object));
  for (const value of [{ content: [{ input: { path: text } }] }, { calls: [{ input: text }] }])
    assert.deepEqual(read(value), { tooLarge: "of more than 1000 bytes besides images and long texts" });
});

const random = new Random(20261120);
const LETTERS = ["a", " ", "\\", '"', "\n", "\u0001", "é", "漢", "😀", "\ud83d", "\ude00", "@blob-", "/"];

test("texts of any length and letters are read and written as they were", () => {
  for (let i = 0; i < 12; i++) {
    const part = random.text(LETTERS, 400) || "x";
    const text = part.repeat(Math.ceil((1_000 + random.int(400_000)) / part.length));
    // Some clients escape all characters that are not ASCII.
    const ascii = JSON.stringify({ text, list: [text, { more: `${text}!` }] }).replace(
      /[^ -~]/g,
      (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
    for (const json of [ascii, JSON.stringify(JSON.parse(ascii))]) {
      const skeleton = readSkeleton(TREE, Buffer.from(json), NONCE);
      assert.ok(skeleton !== "not JSON" && "value" in skeleton);
      assert.ok(skeleton.value.text === text, "read");
      assert.equal(Buffer.concat(skeleton.write(skeleton.value)).toString() === json, true, "written");
      const changed = { ...skeleton.value, text: `${text.slice(1)}?`, moved: text, image: "short" };
      const written = Buffer.concat(finish(skeleton.writeInSteps(changed))).toString();
      assert.ok(isDeepStrictEqual(JSON.parse(written), changed), "changed");
    }
  }
});

test("an image in a long text that changes is restored", () => {
  const image = base64(20_000);
  const { value, write } = read({ url: `data:image/png;base64,${image}`, text: "a b ".repeat(1000) });
  const text = `${value.text} ${value.url} ${JSON.stringify({ url: value.url })}`;
  const written = JSON.parse(Buffer.concat(write({ text })).toString());
  const url = `data:image/png;base64,${image}`;
  assert.equal(written.text, `${"a b ".repeat(1000)} ${url} ${JSON.stringify({ url })}`);
});

test("a long text that is not valid is rejected", () => {
  const long = "a b ".repeat(1000);
  for (const wrong of [`${long}\\x`, `${long}\\u12`, `${long}\n`, `${long}\\u12g4${long}`])
    assert.equal(
      readSkeleton(TREE, Buffer.from(`{"text":"${wrong}"}`), NONCE),
      "not JSON",
      JSON.stringify(wrong.slice(-8)),
    );
});

test("more than 2 MiB of changed texts are not encoded in one step", () => {
  const text = "a b ".repeat(300_000);
  const { value, write, writeInSteps } = read({ text, other: text });
  const changed = { text: `${value.text}!`, other: `${value.other}?` };
  assert.throws(() => write(changed), { problem: "bytes" });
  assert.deepEqual(JSON.parse(Buffer.concat(finish(writeInSteps(changed))).toString()), changed);
});

const TOKENS = 60_000;
const FILLINGS: [name: string, text: string, tokens: number][] = [
  ["numbers", "1,", 1],
  ["strings full of signs", '"[{,:",', 1],
  ["lists", "[],", 2],
  ["objects", '{"a":1},', 4],
  ["messages", '{"role":"user","content":"\\","},', 7],
];
for (const [name, text, each] of FILLINGS) {
  test(`a tree of more than ${TOKENS} values and names is not parsed: ${name}`, () => {
    // The overhead around the values: an object, a name, an array.
    const fits = Math.floor((TOKENS - 4) / each);
    const filled = (count: number): Buffer => Buffer.from(`{"x":[${text.repeat(count)}0]}`);
    const read = readSkeleton(TREE, filled(fits), NONCE);
    assert.ok(read !== "not JSON" && "value" in read);
    assert.deepEqual(readSkeleton(TREE, filled(fits + 1), NONCE), {
      tooLarge: `of more than ${TOKENS} values and names`,
    });
  });
}
