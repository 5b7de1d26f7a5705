/**
 * Renders the Markdown of models. Text is rendered as text nodes, so model output cannot inject markup. Images are
 * not loaded, and links show their destination.
 */
import type { ComponentChildren } from "preact";
import { visible } from "./format.ts";
import { type Block, blocksOf } from "./markdown-blocks.ts";

/** Longer text is shown unformatted, because parsing it would take too long. */
const MAX_CHARS = 200_000;

export function Markdown({ text }: { text: string }) {
  if (text.length > MAX_CHARS) return <p class="wrap">{shown(text)}</p>;
  return (
    <div class="markdown">
      {blocksOf(text).map((block, i) => (
        <BlockView key={i} block={block} />
      ))}
    </div>
  );
}

function BlockView({ block }: { block: Block }) {
  const { kind, lines } = block;
  if (kind === "code") return <pre class="code">{lines.map(visible).join("\n")}</pre>;
  if (kind === "heading") return <p class="heading">{inline((lines[0] ?? "").replace(/^#+\s*/, ""))}</p>;
  if (kind === "quote")
    return <blockquote>{inline(lines.map((line) => line.replace(/^>\s?/, "")).join("\n"))}</blockquote>;
  if (kind === "list") {
    const items = lines.map((line, i) => <li key={i}>{inline(line.replace(/^\s*(?:[-*+]|\d+[.)])\s+/, ""))}</li>);
    return block.isOrdered ? <ol>{items}</ol> : <ul>{items}</ul>;
  }
  if (kind === "table") return <TableView lines={lines} />;
  return <p class="wrap">{inline(lines.join("\n"))}</p>;
}

function TableView({ lines }: { lines: readonly string[] }) {
  const rows = lines.filter((line) => !/^\s*\|?[\s:|-]+\|?\s*$/.test(line)).map(cellsOf);
  const [head = [], ...rest] = rows;
  return (
    <table>
      <thead>
        <tr>
          {head.map((cell, i) => (
            <th key={i} scope="col">
              {inline(cell)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rest.map((row, i) => (
          <tr key={i}>
            {row.map((cell, j) => (
              <td key={j}>{inline(cell)}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function cellsOf(line: string): string[] {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());
}

/** Each alternative ends at the first possible character, so that matching takes linear time. */
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]{1,300})\]\((https?:\/\/[^)\s]{1,2000})\)/g;

function inline(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > from) parts.push(shown(text.slice(from, match.index)));
    const [whole, code, strong, emphasis, label, url] = match;
    if (code !== undefined) parts.push(<code>{shown(code)}</code>);
    else if (strong !== undefined) parts.push(<strong>{shown(strong)}</strong>);
    else if (emphasis !== undefined) parts.push(<em>{shown(emphasis)}</em>);
    else
      parts.push(
        <>
          {shown(label ?? "")} <span class="muted">({shown(url ?? "")})</span>
        </>,
      );
    from = match.index + whole.length;
  }
  if (from < text.length) parts.push(shown(text.slice(from)));
  return parts;
}

/** Keeps line breaks, which `visible` would replace. */
function shown(text: string): string {
  return text.split("\n").map(visible).join("\n");
}
