import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../test/support/cpu-time.ts";
import { peerInput } from "../base/peer-inputs.ts";
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
  const long = Buffer.from(JSON.stringify({ text: "a b ".repeat(1000) }));
  assert.deepEqual(readSkeleton(TREE.upTo(1000), long, NONCE), { tooLarge: "of more than 1000 bytes besides images" });
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
