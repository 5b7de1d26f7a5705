/**
 * The JSON readers: the value is that of JSON.parse, and limits and repeated names are judged by a second count over the
 * tokens of the text. Texts are also read as bytes, in steps, and beyond the size of one step.
 */
import { InputError, type PeerInput, peerInput } from "../../../src/base/peer-inputs.ts";
import { finish } from "../../../src/base/sliced-work.ts";
import { isLossless } from "../../../src/json/lossless.ts";
import { MAX_NUMBER_CHARS } from "../../../src/json/parse-cost.ts";
import { readMembersInSteps, stringifyInSteps } from "../../../src/json/parse-in-steps.ts";
import { readInspected, readJson, readMembers, tryReadJson } from "../../../src/json/read-json.ts";
import { jsonProblem } from "../../../src/json/validate-json.ts";
import type { Random } from "../../support/random.ts";
import { isRecord, parsed, randomJson, writtenName } from "../json.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

const INPUT = peerInput("client/registration");
const { maxDepth: MAX_DEPTH } = INPUT;
/** Values larger than a step, in place of each string `"@"`. */
const LARGE: readonly ((size: number) => string)[] = [
  (size) => `"${"x".repeat(size)}"`,
  (size) => `"${"\\u0041\\n".repeat(size / 8)}"`,
  (size) => `[${"1,".repeat(size / 2)}1]`,
  (size) => `[${'{"a":[1,"b"]},'.repeat(size / 14)}{}]`,
  (size) => `{${Array.from({ length: size / 10 }, (_, i) => `"n${i}":${i}`).join()},"":0}`,
  (size) => `[${" \n".repeat(size / 2)}]`,
  (size) => "1".repeat(size),
  (size) => `[${"[1],".repeat(size / 4)}"é😀"]`,
];
const MAX_LARGE_BYTES = 20_000;
const MANY_ITEMS = 1_000_000;
const NAMES = ["a", "b", "id", "", "__proto__", "constructor", "1", "é", "\ud800", "a\nb", "x", "y"];
const SHAPE = { names: NAMES, maxDepth: 5, brokenOneIn: 120 };
const TOKEN = /"(?:[^"\\]|\\.)*"|[^\s{}[\],:"]+|[{}[\],:]/gs;

type JsonCase = { readonly text: string; readonly items: number; readonly large: number; readonly kind: number };

interface Counted {
  readonly items: number;
  readonly depth: number;
  readonly digits: number;
  readonly isRepeated: boolean;
}

/** Of valid JSON. */
function count(text: string): Counted {
  let items = 0;
  let depth = 0;
  let digits = 0;
  let isRepeated = false;
  /** The names of each open object, and undefined for a list. */
  const open: (Set<string> | undefined)[] = [];
  let last = "";
  for (const [token] of text.matchAll(TOKEN)) {
    if (token === "{" || token === "[") open.push(token === "{" ? new Set() : undefined);
    else if (token === "}" || token === "]") open.pop();
    if (token === "{" || token === "[" || token === ",") items += 1;
    if (token === ":") {
      items += 2;
      const name = JSON.parse(last) as string;
      isRepeated ||= open.at(-1)?.has(name) === true;
      open.at(-1)?.add(name);
    }
    depth = Math.max(depth, open.length);
    if (!token.startsWith('"')) for (const [run] of token.matchAll(/\d+/g)) digits = Math.max(digits, run.length);
    last = token;
  }
  return { items, depth, digits, isRepeated };
}

function problemOf(input: PeerInput<"JSON">, text: string): { value?: unknown; problem: string | undefined } {
  let value: unknown;
  const error = refusalOf(() => {
    value = readJson(input, text);
  }, InputError) as InputError | undefined;
  return { value, problem: error?.problem };
}

function checkValid(input: PeerInput<"JSON">, text: string, value: unknown): string {
  const { items, depth, digits, isRepeated } = count(text);
  const isLong = digits > MAX_NUMBER_CHARS;
  const exceeded = [items > input.maxItems && "items", depth > MAX_DEPTH && "depth", isLong && "form"].filter(Boolean);
  const read = problemOf(input, text);
  expectSame(tryReadJson(input, text), read.value, "the value or undefined");
  const members = finish(stepsOf(input, text));
  if (exceeded.length > 0) {
    expect(exceeded.includes(read.problem ?? ""), `${read.problem} instead of ${exceeded.join()}`);
    expect(members === undefined || members === "items", "read in steps beyond a limit");
    return `beyond ${exceeded.join()}`;
  }
  expectSame(read, { value, problem: undefined }, "the value");
  const object = isRecord(value) ? value : undefined;
  expectSame(readMembers(input, text), object, "the members");
  expectSame(members, object, "the members in steps");
  expectSame(finish(stringifyInSteps(value)), JSON.stringify(value), "written in steps");
  const bytes = Buffer.from(text);
  expectSame(readJson(input, bytes), parsed(bytes.toString("utf8"))?.value, "the value of bytes");
  checkInspected(input, text, value, isRepeated);
  if (isRepeated) expect(!finish(isLossless(bytes, value)), "a repeated name was not lost");
  return `${Array.isArray(value) ? "list" : value === null ? "null" : typeof value} ${depth} ${isRepeated}`;
}

/** A message is checked before it is parsed, with and without the grammar. */
function checkInspected(input: PeerInput<"JSON">, text: string, value: unknown, isRepeated: boolean): void {
  const top: { key: string; start: number; end: number }[] = [];
  const problem = jsonProblem(input, text, top as never);
  if (isRepeated) {
    expect(problem?.includes("is repeated") === true, `a repeated name: ${problem}`);
    const refusal = refusalOf(() => readInspected(input, text), InputError);
    expect(refusal?.message.includes("is repeated") === true, `a repeated name was read: ${refusal?.message}`);
    return;
  }
  expectSame(problem, undefined, "the problem");
  const inspected = readInspected(input, text);
  expectSame(inspected.value, value, "the inspected value");
  expectSame(inspected.top, top, "the places of the members");
  const found = Object.fromEntries(top.map(({ key, start, end }) => [key, JSON.parse(text.slice(start, end))]));
  if (isRecord(value) && !Object.hasOwn(value, "__proto__")) expectSame(found, value, "the members at their places");
}

function* stepsOf(input: PeerInput<"JSON">, text: string) {
  try {
    return yield* readMembersInSteps(input, Buffer.from(text));
  } catch (error) {
    if (error instanceof InputError) return error.problem;
    throw error;
  }
}

function withLarge({ text, large, kind }: JsonCase): string {
  if (!text.includes('"@"')) return text;
  const size = Math.min(MAX_LARGE_BYTES, Math.max(0, Math.floor(large)));
  const make = LARGE[Math.abs(Math.floor(kind)) % LARGE.length] ?? String;
  return text.replace('"@"', () => make(size));
}

function generate(random: Random): JsonCase {
  const deep = random.oneIn(12) ? MAX_DEPTH - 5 + random.int(8) : 0;
  const inner = randomJson(random, SHAPE);
  const isLarge = random.oneIn(16);
  const name = writtenName(random.pick(NAMES), random);
  const text = isLarge ? `{${name}:${inner},"z":["@",${inner}]}` : inner;
  const [open, close] = random.oneIn(2) ? ["[", "]"] : ['{"d":', "}"];
  return {
    text: `${open.repeat(deep)}${text}${close.repeat(deep)}`,
    items: random.pick([1, 5, 20, MANY_ITEMS]),
    large: isLarge ? random.int(MAX_LARGE_BYTES) : 0,
    kind: random.int(LARGE.length),
  };
}

export const jsonReader = defineTarget<JsonCase>({
  name: "json-reader",
  seeds: [
    { text: '{"a":[1,2.5,"x",{"b":null}],"\\u0062":true}', items: MANY_ITEMS, large: 0, kind: 0 },
    { text: '{"a":1,"a":2}', items: 20, large: 0, kind: 0 },
    ...LARGE.map((_, kind) => ({ text: '{"a":["@",1],"b":"c"}', items: MANY_ITEMS, large: MAX_LARGE_BYTES, kind })),
  ],
  smokeCases: 1_500,
  generate,
  run(input) {
    if (!(input.items >= 1)) return "no case";
    // Other texts have no bytes.
    const text = withLarge(input).toWellFormed();
    if (text.length > INPUT.maxBytes) return "too large";
    const limited = INPUT.upToItems(Math.ceil(input.items));
    const json = parsed(text);
    if (json !== undefined) return checkValid(limited, text, json.value);
    const { problem } = problemOf(limited, text);
    expect(problem !== undefined, "invalid JSON was read");
    expect(jsonProblem(limited, text) !== undefined, "invalid JSON has no problem");
    const inspected = refusalOf(() => readInspected(limited, text), InputError);
    expect(inspected !== undefined, "invalid JSON was inspected and read");
    const members = finish(stepsOf(limited, text));
    expect(members === undefined || typeof members === "string", "invalid JSON was read in steps");
    return `refused: ${problem} ${members}`;
  },
});
