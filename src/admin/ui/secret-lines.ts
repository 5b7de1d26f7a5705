/**
 * Where secrets may stand in a configuration that does not parse. Without structure there is no schema: whatever
 * follows a name that sounds like a secret is taken for one, to the end of its line and through the block below it.
 */
import { createRedaction, redactArguments } from "../../observe/trace/redact.ts";

export interface Span {
  readonly start: number;
  readonly end: number;
}

const SOUNDS_SECRET =
  /[\w.-]*(?:secret|passw|htpasswd|token|key|auth|cookie|credential)[\w.-]*["']?\s*[:=]\s*(\S.*)$/gim;
/** A reference to a variable tells nothing; a mark of the editor already stands for something hidden. */
const TELLS_NOTHING = /^["']?(?:\$\{\w+\}|<redacted:\d+>)["']?[\s\]},]*$/;
const REDACTION = createRedaction();
const BLOCK_SCALAR = /^[|>][0-9+-]*\s*(?:#.*)?$/;

export function secretLines(text: string): Span[] {
  const spans: Span[] = [];
  for (const match of text.matchAll(SOUNDS_SECRET)) {
    const value = match[1] as string;
    if (value.startsWith("#") || TELLS_NOTHING.test(value)) continue;
    const end = match.index + match[0].length;
    const start = end - value.length;
    spans.push({ start, end: BLOCK_SCALAR.test(value) ? endOfBlock(text, start, end) : end });
  }
  return [...spans, ...recognizedIn(text)];
}

/** Process arguments, URLs and expressions: words and lines from which the redactor takes something out. */
function recognizedIn(text: string): Span[] {
  const words = [...text.matchAll(/[^\s,[\]{}]+/g)].filter(([word]) => word !== "-");
  const bare = words.map(([word]) => word.replace(/^["']|["']$/g, ""));
  const shown = redactArguments(bare);
  const spans = words.flatMap(({ 0: word, index }, i) =>
    shown[i] === bare[i] ? [] : [{ start: index, end: index + word.length }],
  );
  for (const { 0: line, index } of text.matchAll(/\S.*$/gm))
    if (REDACTION.expression(line) !== line) spans.push({ start: index, end: index + line.length });
  return spans.filter(({ start, end }) => !TELLS_NOTHING.test(text.slice(start, end)));
}

/** The block goes on while lines are indented deeper than the one that opened it. */
function endOfBlock(text: string, opened: number, end: number): number {
  const lineStart = text.lastIndexOf("\n", opened) + 1;
  const indent = /^ */.exec(text.slice(lineStart))?.[0].length ?? 0;
  let at = end;
  while (at < text.length) {
    const next = text.indexOf("\n", at + 1);
    const line = text.slice(at + 1, next < 0 ? undefined : next);
    if (line.trim() !== "" && line.search(/\S/) <= indent) break;
    at = next < 0 ? text.length : next;
  }
  return text.slice(0, at).trimEnd().length;
}
