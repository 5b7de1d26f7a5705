/**
 * Shows a diff with a few lines of context around each change.
 */
import { useMemo } from "preact/hooks";
import { lineDiff } from "./line-diff.ts";

const AROUND = 2;

export function DiffView({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => lineDiff(before, after), [before, after]);
  const isNear = (index: number): boolean =>
    lines.slice(Math.max(0, index - AROUND), index + AROUND + 1).some(({ kind }) => kind !== "same");
  return (
    <pre class="diff">
      {lines.map((line, i) =>
        isNear(i) ? (
          <span key={`${line.before}-${line.after}-${line.kind}`} class={`diff-line ${line.kind}`}>
            <span class="place">{String(line.after ?? line.before ?? "").padStart(4)}</span>
            {line.kind === "added" ? "+ " : line.kind === "removed" ? "− " : "  "}
            {line.text}
            {"\n"}
          </span>
        ) : null,
      )}
    </pre>
  );
}
