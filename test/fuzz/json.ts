/**
 * JSON texts, mostly valid and often nasty: escapes in names, repeated members, numbers beyond a double, white space
 * everywhere, broken ends.
 */
import type { Random } from "../support/random.ts";

const NUMBERS = [
  "0",
  "-0",
  "1",
  "12",
  "1.5",
  "1e3",
  "1E+2",
  "-7",
  "9007199254740993",
  "1e999",
  "0.1",
  "123456789012345678901234",
];
const STRINGS = [
  '""', '"a"', '"hello"', '"\\""', '"\\\\"', '"\\\\\\""', '"\\u0061"', '"\\ud83d\\ude00"', '"\\ud800"', '"{"', '"]"', '":"', '","', '"é"', '"😀"',
  '"usage"', '"\\n"', '"a\\\\"', '"[DONE]"', '"model"', '"\\"usage\\":{"', '" "', '"gpt-4o"',
]; // biome-ignore format: a table
const BROKEN = [
  "",
  "{",
  "}",
  "[",
  "]",
  ",",
  ":",
  '"',
  "\\",
  "nul",
  "01",
  "+1",
  "'a'",
  "\u0000",
  "//",
  "1 2",
  '"\\x"',
  '"\u0001"',
  "undefined",
  "\ufeff",
];
const SPACES = ["", "", "", "", " ", "\n", "\t", "\r\n", "  "];

export interface JsonShape {
  /** Names of members, as text; some are written with escapes. */
  readonly names: readonly string[];
  readonly maxDepth: number;
  /** Something is broken once in so many values. */
  readonly brokenOneIn: number;
}

export function randomJson(random: Random, shape: JsonShape, depth = 0): string {
  if (random.oneIn(shape.brokenOneIn)) return random.pick(BROKEN);
  const kind = depth >= shape.maxDepth ? 3 + random.int(5) : random.int(8);
  const space = (): string => random.pick(SPACES);
  switch (kind) {
    case 0:
    case 1:
      return randomObject(random, shape, depth);
    case 2:
      return `[${space()}${random.list(3, () => randomJson(random, shape, depth + 1)).join(`${space()},${space()}`)}${space()}]`;
    case 3:
      return random.pick(NUMBERS);
    case 4:
      return random.pick(["true", "false", "null"]);
    default:
      return random.pick(STRINGS);
  }
}

export function randomObject(random: Random, shape: JsonShape, depth = 0): string {
  const space = (): string => random.pick(SPACES);
  const members = random.list(5, () => {
    const name = writtenName(random.pick(shape.names), random);
    return `${name}${space()}:${space()}${randomJson(random, shape, depth + 1)}`;
  });
  return `{${space()}${members.join(`${space()},${space()}`)}${space()}}`;
}

/** As JSON; once in a while with a letter as an escape. */
export function writtenName(name: string, random: Random): string {
  if (!random.oneIn(10) || name === "") return JSON.stringify(name);
  const at = random.int(name.length);
  const code = name.charCodeAt(at).toString(16).padStart(4, "0");
  return `"${name.slice(0, at)}\\u${random.oneIn(2) ? code : code.toUpperCase()}${name.slice(at + 1)}"`.replace(
    /\n/g,
    "\\n",
  );
}

/** Undefined if the text is not valid; `value` may be null. */
export function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
