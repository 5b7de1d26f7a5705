/**
 * Highlights YAML, and shows values as YAML. Strings are rendered as text nodes, never as markup.
 */
import { useState } from "preact/hooks";
import { wholeText } from "../../../src/base/format.ts";
import { visible } from "./format.ts";
import { toYaml } from "./to-yaml.ts";

const SHOWN_LINES = 40;

export function Yaml({ value }: { value: unknown }) {
  const [isWhole, setIsWhole] = useState(false);
  const lines = toYaml(value).split("\n");
  const shown = isWhole ? lines : lines.slice(0, SHOWN_LINES);
  return (
    <>
      <pre class="yaml">
        {shown.map((line, i) => (
          <span key={i} class="line">
            <Highlighted line={visible(line)} />
            {"\n"}
          </span>
        ))}
      </pre>
      {shown.length < lines.length ? (
        <button type="button" class="button quiet" onClick={() => setIsWhole(true)}>
          Show all {wholeText(lines.length)} lines
        </button>
      ) : null}
    </>
  );
}

export function Highlighted({ line }: { line: string }) {
  return (
    <>
      {tokens(line).map(({ kind, text }, i) => (
        <span key={i} class={kind}>
          {text}
        </span>
      ))}
    </>
  );
}

interface Token {
  readonly kind: string;
  readonly text: string;
}

const TOKEN =
  /(?<c>(?:^|(?<=\s))#.*$)|(?<r><redacted:\d+>)|(?<v>\$\{[^}]*\})|(?<k>[\w.$/-]+(?=\s*:(?:\s|$)))|(?<s>"(?:[^"\\]|\\.)*"|'[^']*')|(?<n>(?<=[\s[,]|^)(?:-?\d+(?:\.\d+)?|true|false|null)(?=[\s,\]}]|$))/g;

function tokens(line: string): Token[] {
  const found: Token[] = [];
  let from = 0;
  for (const match of line.matchAll(TOKEN)) {
    if (match.index > from) found.push({ kind: "", text: line.slice(from, match.index) });
    const kind = Object.entries(match.groups ?? {}).find(([, value]) => value !== undefined)?.[0] ?? "";
    found.push({ kind, text: match[0] });
    from = match.index + match[0].length;
  }
  if (from < line.length) found.push({ kind: "", text: line.slice(from) });
  return found;
}
