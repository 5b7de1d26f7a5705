/**
 * A list to pick from, in a frame that scrolls for itself: routes, tools, prompts. Thousands of entries are as quick as
 * ten, and headings between them are entries too.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useWindowed } from "./windowed.ts";

export interface PickEntry {
  readonly key: string;
  readonly content: ComponentChildren;
  /** A link, a button, or, without either, a heading. */
  readonly href?: string;
  readonly onPick?: () => void;
  readonly isChosen?: boolean;
}

export function PickList({
  entries,
  rowHeight,
  empty,
}: {
  entries: readonly PickEntry[];
  /** In pixels; the style sheet gives the rows the same. */
  rowHeight: 28 | 44;
  empty: string;
}) {
  const list = useRef<HTMLUListElement>(null);
  const { from, to, before, after } = useWindowed(entries.length, rowHeight, list);
  const chosen = entries.findIndex(({ isChosen }) => isChosen);
  useEffect(() => {
    // The chosen one may stand outside of what is drawn; the frame is moved, not the page.
    const frame = list.current?.parentElement;
    if (!frame || chosen < 0) return;
    const top = chosen * rowHeight;
    if (top < frame.scrollTop || top + rowHeight > frame.scrollTop + frame.clientHeight)
      frame.scrollTop = Math.max(0, top - frame.clientHeight / 2);
  }, [chosen, rowHeight]);
  if (entries.length === 0) return <p class="empty">{empty}</p>;
  return (
    <div class="pick-frame">
      <ul class={`pick rows-${rowHeight}`} ref={list}>
        {before > 0 ? <li class="gap" style={{ height: `${before}px` }} aria-hidden="true" /> : null}
        {entries.slice(from, to).map((entry) => (
          <li key={entry.key}>
            <Entry entry={entry} />
          </li>
        ))}
        {after > 0 ? <li class="gap" style={{ height: `${after}px` }} aria-hidden="true" /> : null}
      </ul>
    </div>
  );
}

function Entry({ entry: { content, href, onPick, isChosen } }: { entry: PickEntry }) {
  const current = isChosen ? { "aria-current": "true" as const } : {};
  if (href !== undefined)
    return (
      <a href={href} {...current}>
        {content}
      </a>
    );
  if (onPick === undefined) return <div class="group">{content}</div>;
  return (
    <button type="button" onClick={onPick} {...current}>
      {content}
    </button>
  );
}
