/**
 * Readers do not parse what exceeds a limit of their entry, and parse what is just within it. The readers of JSON are
 * those of the hostile inputs, and the platform's parser is watched while they read.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { readForm } from "../../src/base/form.ts";
import { LineSplitter, LineTooLong } from "../../src/base/line-splitter.ts";
import { InputError, PEER_INPUTS, type PeerInput, type Reader } from "../../src/base/peer-inputs.ts";
import { compileRe2 } from "../../src/base/regex.ts";
import { readCertificate, readPrivateKey } from "../../src/http/certificates.ts";
import { createSseParser, SseTooLarge } from "../../src/http/sse.ts";
import { readXmlElement } from "../../src/identity/cloud/read-xml.ts";
import { parseToken } from "../../src/identity/tokens/token.ts";
import { outcomeOf } from "./count-work.ts";
import type { Hostile } from "./hostile.ts";
import { HOSTILE_INPUTS } from "./list.ts";

/** Larger inputs take too long for a test. */
const MAX_BYTES = 1_100_000;
/** For the levels and values around the shape. */
const AROUND = { levels: 10, values: 200 };
/** These readers scan the input, parse only members that the shape does not have, or have a smaller limit of bytes. */
const SCANNED: ReadonlySet<string> = new Set([
  "client/llm-request depth",
  "client/login-state bytes",
  "file/store-lock depth",
  "guard-service/webhook-verdict items",
  "llm-provider/usage bytes",
  "llm-provider/usage depth",
  "mcp-server/event depth",
  "mcp-server/http-response depth",
  "mcp-server/stdio-message depth",
  "mirror/response bytes",
  "openapi-server/response depth",
  "replica/mcp-message depth",
  "store/sealed-value depth",
]);

const SMALL_CHARS = 16;

interface Parsed {
  chars: number;
  depth: number;
}

/** Returns what the platform's parser reads while the action runs. */
async function parsedBy(action: () => unknown): Promise<Parsed> {
  const parsed: Parsed = { chars: 0, depth: 0 };
  const original = JSON.parse;
  JSON.parse = (text, reviver) => {
    // Some readers parse a constant in place of what they reject.
    if (String(text).length > SMALL_CHARS) parsed.chars += String(text).length;
    if (String(text).length > SMALL_CHARS) parsed.depth = Math.max(parsed.depth, levels(String(text)));
    return original(text, reviver);
  };
  try {
    await outcomeOf(action);
  } finally {
    JSON.parse = original;
  }
  return parsed;
}

function levels(text: string): number {
  let depth = 0;
  let deepest = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[{\]}]/g)) {
    if (token === "[" || token === "{") depth += 1;
    else if (token === "]" || token === "}") depth -= 1;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

interface Sizes {
  readonly within: number;
  readonly beyond: number;
}

/** The sizes are those of the shape, just within the limit and just beyond it. */
function checkJson(
  limit: "bytes" | "depth" | "items",
  shape: string,
  sizesOf: (input: PeerInput) => Sizes,
  parsed: (read: Parsed) => number,
  expected: (within: number) => number,
): void {
  const scanned: string[] = [];
  for (const input of PEER_INPUTS) {
    const hostile = (HOSTILE_INPUTS as Readonly<Record<string, Hostile>>)[input.id];
    const name = hostile?.shapes.find((one) => one.endsWith(shape));
    const sizes = sizesOf(input);
    if (input.reader !== "JSON" || hostile === undefined || name === undefined || sizes.beyond > MAX_BYTES) continue;
    const read = (size: number) => parsedBy(hostile.prepare(name, size, Number.POSITIVE_INFINITY));
    test(input.id, async () => {
      assert.equal(parsed(await read(sizes.beyond)), 0, "beyond the limit");
      if (parsed(await read(sizes.within)) < expected(sizes.within)) scanned.push(`${input.id} ${limit}`);
    });
  }
  test("only these inputs within the limit are not parsed", () =>
    assert.deepEqual(
      scanned.sort(),
      [...SCANNED].filter((one) => one.endsWith(` ${limit}`)),
    ));
}

describe("JSON: bytes", () =>
  checkJson(
    "bytes",
    "one large string",
    ({ maxBytes }) => ({ within: 0.9 * maxBytes, beyond: maxBytes + 1 }),
    ({ chars }) => chars,
    (within) => 0.9 * within,
  ));

describe("JSON: levels", () =>
  checkJson(
    "depth",
    "deep lists",
    ({ maxDepth }) => ({ within: 2 * (maxDepth - AROUND.levels), beyond: 2 * (maxDepth + 1) }),
    ({ depth }) => depth,
    (within) => within / 2,
  ));

describe("JSON: items", () =>
  checkJson(
    "items",
    "many small items",
    ({ maxItems }) => ({ within: 2 * (maxItems - AROUND.values), beyond: 2 * (maxItems + 2) }),
    ({ chars }) => chars,
    (within) => within,
  ));

function ofReader<R extends Reader>(reader: R): readonly PeerInput<R>[] {
  return PEER_INPUTS.filter((input): input is PeerInput<R> => input.reader === reader);
}

/** Returns which limit the reader says that the text exceeds. */
function problemOf(read: () => unknown): string {
  try {
    read();
    return "none";
  } catch (error) {
    if (error instanceof LineTooLong || error instanceof SseTooLarge) return "bytes";
    return error instanceof InputError ? error.problem : "form";
  }
}

/** `read` reads a text of so many bytes. */
function checkBytes<R extends Reader>(reader: R, read: (input: PeerInput<R>, bytes: number) => unknown): void {
  test(`${reader}: bytes`, () => {
    const inputs = ofReader(reader);
    assert.notEqual(inputs.length, 0);
    for (const input of inputs) {
      assert.notEqual(
        problemOf(() => read(input, input.maxBytes)),
        "bytes",
        input.id,
      );
      assert.equal(
        problemOf(() => read(input, input.maxBytes + 1)),
        "bytes",
        input.id,
      );
    }
  });
}

checkBytes("PEM", (input, bytes) => readCertificate(input, "x".repeat(bytes)));
checkBytes("PEM", (input, bytes) => readPrivateKey(input, "x".repeat(bytes)));
checkBytes("XML", (input, bytes) => readXmlElement(input, "x".repeat(bytes), "a"));
checkBytes("form", (input, bytes) => readForm(input, "x".repeat(bytes)));
checkBytes("regular expression", (input, bytes) =>
  compileRe2(input, bytes > input.maxBytes || bytes < 16_384 ? "x".repeat(bytes) : "x"),
);

test("JWT: bytes", () => {
  for (const input of ofReader("JWT")) {
    const detail = (bytes: number): string | undefined => {
      const parsed = parseToken("x".repeat(bytes), input);
      return parsed.ok ? undefined : parsed.problem.detail;
    };
    assert.doesNotMatch(detail(input.maxBytes) ?? "", /the maximum is/, input.id);
    assert.match(detail(input.maxBytes + 1) ?? "", new RegExp(`the maximum is ${input.maxBytes}$`), input.id);
  }
});

/** Pieces of one line, whose length is the sum of the sizes. */
const PIECES = {
  whole: (bytes: number) => [bytes],
  "a piece before the end": (bytes: number) => [bytes - 7, 7],
  "most of it at the end": (bytes: number) => [7, bytes - 7],
  "many pieces": (bytes: number) => Array.from({ length: bytes }, () => 1),
};

describe("lines and events of any pieces: bytes", () => {
  const MAX = 1_000;
  for (const [name, pieces] of Object.entries(PIECES))
    for (const lineEnd of ["\n", "\r\n"])
      test(`${name}, ${JSON.stringify(lineEnd)}`, () => {
        const chunks = (bytes: number, prefix = ""): Buffer[] => [
          ...(prefix === "" ? [] : [Buffer.from(prefix)]),
          ...pieces(bytes).map((size, i, all) => Buffer.from("x".repeat(size) + (i === all.length - 1 ? lineEnd : ""))),
        ];
        for (const input of ofReader("lines"))
          for (const [bytes, expected] of [
            [MAX, "none"],
            [MAX + 1, "bytes"],
          ] as const) {
            const splitter = new LineSplitter(input.upTo(MAX), () => undefined);
            assert.equal(
              problemOf(() => chunks(bytes).forEach((chunk) => void splitter.push(chunk))),
              expected,
              input.id,
            );
          }
        for (const input of ofReader("event stream"))
          for (const [bytes, expected] of [
            [MAX - "data:".length, "none"],
            [MAX + 1 - "data:".length, "bytes"],
          ] as const) {
            const parser = createSseParser(input.upTo(MAX), () => undefined);
            assert.equal(
              problemOf(() => chunks(bytes, "data:").forEach((chunk) => void parser.push(chunk))),
              expected,
              input.id,
            );
          }
      });
});
