/**
 * `node scripts/prose.mjs`: finds the phrases of scripts/prose/vocabulary.yaml in the texts that people read: the
 * documentation, the web UI, and the log messages, errors and CLI texts in src/. test/prose.test.ts runs it.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { root } from "./steps.mjs";

/** Generated pages repeat texts of the sources; decision records and the changelog are history. */
const SKIPPED_PAGES = /^docs\/(?:adr|reference)\/|^CHANGELOG\.md$/;

export function readVocabulary() {
  const entries = parse(readFileSync(join(root, "scripts/prose/vocabulary.yaml"), "utf8"));
  return entries.map((entry) => ({
    ...entry,
    pattern: new RegExp(entry.phrase.startsWith("^") ? entry.phrase : `(?<![\\w-])(?:${entry.phrase})(?![\\w-])`, "i"),
    kinds: new Set(entry.in ?? ["docs", "ui", "messages"]),
  }));
}

/** The problems of one text: a sentence, a label, or a message. */
export function problemsOf(text, kind, vocabulary) {
  return vocabulary
    .filter(({ kinds, pattern }) => kinds.has(kind) && pattern.test(text))
    .map(({ pattern, instead }) => `"${pattern.exec(text)?.[0]}": write ${instead}`);
}

/** Every sentence of a Markdown page with its line. Code, headings, links' targets and HTML comments are left out. */
export function sentencesOf(markdown) {
  const plain = markdown
    .replace(/^```[\s\S]*?^```/gm, (block) => block.replace(/[^\n]/g, ""))
    .replace(/<!--[\s\S]*?-->/g, (block) => block.replace(/[^\n]/g, ""))
    .replace(/`[^`\n]*`/g, "CODE")
    .replace(/\]\([^)]*\)/g, "]")
    .replace(/[*[\]]/g, "");
  const sentences = [];
  let paragraph = [];
  const close = () => {
    const [first] = paragraph;
    if (first !== undefined) {
      const text = paragraph.map((line) => line.text.trim()).join(" ");
      for (const sentence of text.split(/(?<=[.!?])\s+(?=[A-Z"(])/))
        sentences.push({ line: first.line, text: sentence });
    }
    paragraph = [];
  };
  for (const [index, line] of plain.split("\n").entries()) {
    const item = /^\s*(?:[-*]|\d+\.)\s+(.*)$/.exec(line);
    if (line.trim() === "" || line.startsWith("#")) close();
    else if (line.startsWith("|")) {
      close();
      for (const cell of line.split("|")) if (cell.trim()) sentences.push({ line: index + 1, text: cell.trim() });
    } else {
      if (item) close();
      paragraph.push({ line: index + 1, text: item ? item[1] : line });
    }
  }
  close();
  return sentences;
}

/** Comments and regular expressions, which are skipped, and string literals, templates and JSX texts. */
const TOKEN =
  /\/\*[\s\S]*?\*\/|\/\/.*|(?<=(?:[(,=:[!&|?{};]|return|^)\s*)\/(?:[^\\/[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`|(?<=>)([^<>{}()=;]+)(?=<)/gm;

/** The texts of a source file that have at least two words, with their lines. The placeholders of templates are CODE. */
export function stringsOf(source) {
  const strings = [];
  for (const token of source.matchAll(TOKEN)) {
    const text = (token[1] ?? token[2] ?? token[3] ?? token[4] ?? "").replace(/\$\{[^}]*\}/g, "CODE");
    if (/[a-z] [a-z]/i.test(text)) strings.push({ line: source.slice(0, token.index).split("\n").length, text });
  }
  return strings;
}

/** `path:line: problem` for every text of the project. */
export function checkProse(folder = root, vocabulary = readVocabulary()) {
  const found = [];
  const report = (path, kind, texts) => {
    for (const { line, text } of texts)
      for (const problem of problemsOf(text, kind, vocabulary)) found.push(`${path}:${line}: ${problem}`);
  };
  const below = (start, ending) =>
    readdirSync(join(folder, start), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && ending.test(entry.name))
      .map((entry) => relative(folder, join(entry.parentPath ?? entry.path, entry.name)))
      .filter((path) => !path.includes("node_modules") && !/\.test\.tsx?$/.test(path));
  const read = (path) => readFileSync(join(folder, path), "utf8");

  const pages = [...below("docs", /\.md$/), ...below("examples", /\.md$/)].concat(
    readdirSync(folder).filter((name) => name.endsWith(".md")),
  );
  for (const path of pages) if (!SKIPPED_PAGES.test(path)) report(path, "docs", sentencesOf(read(path)));
  for (const path of below("ui/src", /\.tsx?$/)) report(path, "ui", stringsOf(read(path)));
  for (const path of below("src", /\.tsx?$/)) report(path, "messages", stringsOf(read(path)));
  return found;
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const found = checkProse();
  for (const line of found) console.log(line);
  process.exitCode = found.length === 0 ? 0 : 1;
}
