import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ResponseParser } from "./response-parser.ts";
import { wholeChunks } from "./whole-chunks.ts";

const HEAD = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/** What the parser makes of the same text; undefined if it refuses it, or is not between two chunks after it. */
function parsed(text: string): string | undefined {
  let body = "";
  const parser = new ResponseParser({
    head: () => undefined,
    data: (chunk) => {
      body += chunk.toString("latin1");
    },
    end: () => undefined,
    upgrade: () => undefined,
  });
  parser.expect("GET", false);
  parser.push(Buffer.from(HEAD));
  assert.equal(parser.isBetweenChunks, true);
  try {
    parser.push(Buffer.from(text, "latin1"));
  } catch {
    return undefined;
  }
  return parser.isBetweenChunks ? body : undefined;
}

const piece = fc.constantFrom(..."0 1 2 A a5 00 01 10 ; \r \n \r\n \t \0 x xy é ÿ data".split(" "), " ", "\r\n\r\n");
const chunk = fc
  .string({ unit: "binary", minLength: 1, maxLength: 20 })
  .map((text) => Buffer.from(text).toString("latin1"))
  .map((body) => `${body.length.toString(16)}\r\n${body}\r\n`);

test("what it takes for whole chunks is what the parser reads in them", () => {
  let taken = 0;
  const texts = fc.array(fc.oneof({ weight: 3, arbitrary: chunk }, piece), { maxLength: 6 }).map((all) => all.join(""));
  fc.assert(
    fc.property(texts, (text) => {
      const bodies = wholeChunks(text);
      if (bodies === undefined) return;
      taken += 1;
      assert.equal(bodies, parsed(text));
    }),
    { numRuns: 5000 },
  );
  assert.ok(taken > 500, `${taken} were taken`);
});

test("chunks without anything else are taken", () => {
  fc.assert(
    fc.property(fc.array(chunk, { minLength: 1, maxLength: 5 }), (chunks) => {
      assert.equal(wholeChunks(chunks.join("")), parsed(chunks.join("")));
    }),
  );
  assert.equal(wholeChunks("A\r\n0123456789\r\n"), "0123456789");
  assert.equal(wholeChunks("00b\r\n0123456789a\r\n"), "0123456789a");
});

const others: [name: string, text: string][] = [
  ["nothing", ""],
  ["the last chunk", "0\r\n\r\n"],
  ["a chunk and the last one", "1\r\na\r\n0\r\n\r\n"],
  ["a part of a size", "1"],
  ["a part of a body", "5\r\nab"],
  ["a body without its line end", "2\r\nab"],
  ["half of a line end", "2\r\nab\r"],
  ["a part of the next chunk", "1\r\na\r\n2\r\nb"],
  ["an extension", "1;a=b\r\na\r\n"],
  ["a blank behind the size", "1 \r\na\r\n"],
  ["a bare line break", "1\na\n"],
  ["a size that is too small", "1\r\nab\r\n"],
  ["many digits", "000001\r\na\r\n"],
  ["a sign", "+1\r\na\r\n"],
  ["a hexadecimal prefix", "0x1\r\na\r\n"],
];
for (const [name, text] of others) {
  test(`left to the parser: ${name}`, () => assert.equal(wholeChunks(text), undefined));
}
