/**
 * The texts that people read (documentation, web UI, log messages, errors and CLI texts) contain none of the phrases in
 * scripts/prose/vocabulary.yaml. Each phrase has a sentence in which the checker finds it and one in which it does not.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

interface Phrase {
  readonly phrase: string;
  readonly bad: string;
  readonly good: string;
  readonly kinds: ReadonlySet<string>;
}

const { checkProse, problemsOf, readVocabulary, sentencesOf, stringsOf } = (await import(
  pathToFileURL(join(process.cwd(), "scripts/prose.mjs")).href
)) as {
  checkProse(): string[];
  problemsOf(text: string, kind: string, vocabulary: readonly Phrase[]): string[];
  readVocabulary(): Phrase[];
  sentencesOf(markdown: string): { line: number; text: string }[];
  stringsOf(source: string): { line: number; text: string }[];
};
const vocabulary = readVocabulary();

test("no text has a phrase of the vocabulary", () => {
  assert.deepEqual(checkProse(), []);
});

for (const entry of vocabulary)
  test(`the checker knows: ${entry.phrase}`, () => {
    for (const kind of entry.kinds) {
      assert.equal(problemsOf(entry.bad, kind, [entry]).length, 1, entry.bad);
      assert.deepEqual(problemsOf(entry.good, kind, vocabulary), [], entry.good);
    }
  });

test("the checker reads the sentences of a page, without code and headings", () => {
  const page =
    "# What it is\n\nOne `is away` two.\nThree. Four\n\n- Five\n  six.\n\n| a | `b` c |\n\n```sh\nis away\n```\n";
  assert.deepEqual(
    sentencesOf(page).map(({ line, text }) => `${line}: ${text}`),
    ["3: One CODE two.", "3: Three.", "3: Four", "6: Five six.", "9: a", "9: CODE c"],
  );
});

test("the checker reads the strings of a source file, without comments and regular expressions", () => {
  const source = `// a "quoted comment" here
const a = "one two"; /* 'three four' */ const b = /five "six/;
const c = \`seven \${a} eight\` + 'nine ten' + "word";
const d = <p>eleven twelve</p>;
`;
  assert.deepEqual(
    stringsOf(source).map(({ line, text }) => `${line}: ${text}`),
    ["2: one two", "3: seven CODE eight", "3: nine ten", "4: eleven twelve"],
  );
});
