/**
 * Provides a list to select from, such as routes or tools. Only visible rows are rendered, so it is fast with thousands
 * of entries.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useWindowed } from "./windowed.ts";

export interface PickEntry {
  readonly key: string;
  readonly content: ComponentChildren;
  /** An entry with `href` is a link, with `onPick` a button, and otherwise a heading. */
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
  /** The height is in pixels and must match the style sheet. */
  rowHeight: 28 | 44;
  empty: string;
}) {
  const list = useRef<HTMLUListElement>(null);
  const { from, to, before, after } = useWindowed(entries.length, rowHeight, list);
  const chosen = entries.findIndex(({ isChosen }) => isChosen);
  useEffect(() => {
    // The selected entry may not be rendered, so its position is computed. Only the list scrolls, not the page.
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
