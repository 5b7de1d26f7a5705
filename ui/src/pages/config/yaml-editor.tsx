/**
 * Implements a YAML editor. Highlighted text is drawn below a transparent text area of the same size. The native text
 * area keeps shortcuts and screen readers working.
 */
import { useEffect, useMemo, useRef } from "preact/hooks";
import { useWindowed } from "../../parts/windowed.ts";
import { Highlighted } from "../../parts/yaml.tsx";

const LINE_HEIGHT = 18;
const PADDING = 8;

export interface LineMark {
  readonly line: number;
  readonly level: "bad" | "warn";
  readonly message: string;
}

export function YamlEditor({
  text,
  lines,
  marks,
  line,
  isReadOnly,
  onChange,
  onLine,
}: {
  text: string;
  lines: readonly string[];
  marks: readonly LineMark[];
  line: number | undefined;
  isReadOnly: boolean;
  onChange(text: string): void;
  /** Called with the zero-based index of the line under the pointer or caret. */
  onLine(index: number): void;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const sheet = useRef<HTMLDivElement>(null);
  const marked = new Map(marks.map((mark) => [mark.line, mark]));
  // Only visible lines are highlighted. The text area contains the whole text.
  const { from, to, before, after } = useWindowed(lines.length, LINE_HEIGHT, sheet);
  const shown = lines.slice(from, to);
  const widest = useMemo(() => lines.reduce((most, one) => Math.max(most, one.length), 0), [lines]);
  useEffect(() => {
    if (line !== undefined) frame.current?.scrollTo({ top: Math.max(0, (line - 4) * LINE_HEIGHT) });
  }, [line]);
  return (
    <div class="editor" ref={frame}>
      <div class="gutter" aria-hidden="true">
        <div style={{ height: `${before}px` }} />
        {shown.map((_text, i) => {
          const place = from + i + 1;
          const mark = marked.get(place);
          return (
            <span key={place} class={`${mark ? mark.level : ""}${line === place ? " here" : ""}`} title={mark?.message}>
              {place}
            </span>
          );
        })}
        <div style={{ height: `${after}px` }} />
      </div>
      <div class="sheet" ref={sheet} style={{ minWidth: `calc(${widest}ch + 24px)` }}>
        <pre aria-hidden="true">
          <div style={{ height: `${before}px` }} />
          {shown.map((content, i) => (
            <Line key={from + i} text={content} mark={marked.get(from + i + 1)} isHere={line === from + i + 1} />
          ))}
          <div style={{ height: `${after}px` }} />
        </pre>
        <textarea
          aria-label="Configuration"
          spellcheck={false}
          readOnly={isReadOnly}
          rows={lines.length}
          value={text}
          onInput={(event) => onChange(event.currentTarget.value)}
          onMouseMove={(event) => {
            const top = event.currentTarget.getBoundingClientRect().top;
            onLine(Math.floor((event.clientY - top - PADDING) / LINE_HEIGHT));
          }}
          onKeyUp={(event) => {
            const before = event.currentTarget.value.slice(0, event.currentTarget.selectionStart);
            onLine(before.split("\n").length - 1);
          }}
          onKeyDown={(event) => {
            if (event.key !== "Tab" || event.shiftKey || isReadOnly) return;
            // Shift-Tab and Escape still leave the field.
            event.preventDefault();
            document.execCommand("insertText", false, "  ");
          }}
        />
      </div>
    </div>
  );
}

function Line({ text, mark, isHere }: { text: string; mark: LineMark | undefined; isHere: boolean }) {
  return (
    <span class={`line${mark ? ` ${mark.level}` : ""}${isHere ? " here" : ""}`}>
      <Highlighted line={text} />
      {"\n"}
    </span>
  );
}
