/**
 * YAML: JSON is read as its value, and other texts as the library reads them with its own checks. Texts beyond a limit are
 * rejected with the name of the limit.
 */
import { type Document, parseAllDocuments } from "yaml";
import { InputError, peerInput } from "../../../src/base/peer-inputs.ts";
import { MAX_ALIASES, readLooseYaml, readYaml, readYamlDocuments } from "../../../src/base/read-yaml.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

const INPUT = peerInput("file/kubeconfig");
/** The lexer puts this character before each plain scalar. */
const PLAIN_SCALAR = String.fromCharCode(0x1f);
const PIECES = [
  "a: ",
  "b: ",
  "- ",
  "\n",
  "\n  ",
  "\n    ",
  "[",
  "]",
  "{",
  "}",
  ", ",
  "&a ",
  "*a",
  '"x"',
  "'y'",
  "|\n",
  ">-\n",
  "# c\n",
  "? ",
  ": ",
  "1",
  "~",
  "true",
  "text",
  "---\n",
  "...\n",
  "!!str ",
  "\t",
  "__proto__: ",
];

function json(random: Random, depth: number): unknown {
  const kind = random.int(depth > 4 ? 4 : 6);
  if (kind === 0) return random.int(1_000);
  if (kind === 1) return random.text(["a", " ", "é", "\n", '"', ": ", "- "], 5);
  if (kind === 2) return random.oneIn(2);
  if (kind === 3) return null;
  const items = Array.from({ length: random.int(4) }, () => json(random, depth + 1));
  return kind === 4 ? items : Object.fromEntries(items.map((item, i) => [`k${i}`, item]));
}

type YamlCase = { readonly text: string; readonly items: number };

export const yaml = defineTarget<YamlCase>({
  name: "yaml",
  seeds: [
    { text: "a: [1, {b: c}]\nd: &a x\ne: *a\n", items: 100 },
    { text: '{"a": [1, 2]}', items: 100 },
  ],
  smokeCases: 1_000,
  generate: (random) => ({
    text: random.oneIn(3) ? JSON.stringify(json(random, 0)) : random.text(PIECES, 24),
    items: random.pick([3, 10, 1_000]),
  }),
  run({ text, items }) {
    if (!(items >= 1)) return "no case";
    const input = INPUT.upToItems(Math.ceil(items));
    let value: unknown;
    const error = refusalOf(() => {
      value = readYaml(input, text);
    }, InputError) as InputError | undefined;
    if (error !== undefined && error.problem !== "form") {
      // Each item has a character, but a mark of the lexer counts as one. An alias may be expanded too often.
      const isLong = text.length > input.maxItems || text.includes("*") || text.includes(PLAIN_SCALAR);
      expect(error.problem !== "items" || isLong, "the text is within the limit");
      return `refused: ${error.problem}`;
    }
    const options = { prettyErrors: false, logLevel: "error", version: "1.2", merge: false } as const;
    const documents: Document[] = [parseAllDocuments(text, options)].flat();
    const [document] = documents;
    const isWrong = documents.length > 1 || (document?.errors.length ?? 0) > 0;
    expectSame(error !== undefined, isWrong, `an error: ${error?.message ?? document?.errors[0]?.message}`);
    if (error !== undefined) {
      refusalOf(() => readLooseYaml(INPUT, text), InputError);
      return "refused: form";
    }
    expectSame(value, document?.toJS({ maxAliasCount: MAX_ALIASES }) ?? null, "the value");
    expectSame(readLooseYaml(INPUT, text), value, "read loosely");
    if (isJson(text)) expectSame(value, JSON.parse(text), "JSON");
    return `read ${typeof value} ${readYamlDocuments(INPUT, text).length}`;
  },
});

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return !text.includes("__proto__") && !text.includes("\r");
  } catch {
    return false;
  }
}
