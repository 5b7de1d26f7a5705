/**
 * Splits Markdown into blocks, line by line, without parsing their content.
 */
export type Block =
  | { readonly kind: "code"; readonly language: string; readonly lines: readonly string[] }
  | { readonly kind: "heading" | "quote" | "text"; readonly lines: readonly string[] }
  | { readonly kind: "list"; readonly isOrdered: boolean; readonly lines: readonly string[] }
  | { readonly kind: "table"; readonly lines: readonly string[] };

export function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; ) {
    const line = lines[i] ?? "";
    const fence = /^\s*(```+|~~~+)\s*(\S*)/.exec(line);
    if (fence) {
      const end = lines.findIndex((one, at) => at > i && one.trim().startsWith(fence[1] ?? "```"));
      const to = end < 0 ? lines.length : end;
      blocks.push({ kind: "code", language: fence[2] ?? "", lines: lines.slice(i + 1, to) });
      i = to + 1;
      continue;
    }
    if (line.trim() === "") {
      i += 1;
      continue;
    }
    const kind = kindOf(line, lines[i + 1] ?? "");
    let to = i + 1;
    if (kind !== "heading")
      while (to < lines.length && (lines[to] ?? "").trim() !== "" && continues(kind, lines[to] ?? "")) to += 1;
    const own = lines.slice(i, to);
    if (kind === "list") blocks.push({ kind, isOrdered: /^\s*\d/.test(line), lines: own });
    else blocks.push({ kind, lines: own });
    i = to;
  }
  return blocks;
}

function kindOf(line: string, next: string): "heading" | "quote" | "list" | "table" | "text" {
  if (/^#{1,6}\s/.test(line)) return "heading";
  if (line.startsWith(">")) return "quote";
  if (isItem(line)) return "list";
  return line.includes("|") && /^\s*\|?\s*:?-+/.test(next) ? "table" : "text";
}

function continues(kind: string, line: string): boolean {
  if (kind === "list") return isItem(line);
  if (kind === "quote") return line.startsWith(">");
  if (kind === "table") return line.includes("|");
  return kindOf(line, "") === "text" && !/^\s*(?:```|~~~)/.test(line);
}

function isItem(line: string): boolean {
  return /^\s*(?:[-*+]|\d{1,9}[.)])\s+\S/.test(line);
}
