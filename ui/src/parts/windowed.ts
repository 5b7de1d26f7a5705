/**
 * Renders only the visible rows of a long list. All rows have the same height, and spacers replace the other rows.
 */
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

/** Extra rows hide gaps during fast scrolling, and `j` can select the next row. */
const EXTRA_ROWS = 8;
/** Shorter lists are rendered completely. */
const MIN_ROWS = 60;

export interface Windowed {
  readonly from: number;
  readonly to: number;
  /** `before` and `after` are the heights of the spacers in pixels. */
  readonly before: number;
  readonly after: number;
}

/** `list` is the element that contains the rows. */
export function useWindowed(count: number, rowHeight: number, list: RefObject<HTMLElement | null>): Windowed {
  const [range, setRange] = useState({ from: 0, to: MIN_ROWS });
  const isLong = count > MIN_ROWS;
  useEffect(() => {
    const element = list.current;
    if (!isLong || !element) return undefined;
    let asked = 0;
    const look = (): void => {
      asked = 0;
      // At most the height of the window is visible, regardless of which element scrolls.
      const { top } = element.getBoundingClientRect();
      const first = Math.max(0, Math.floor(-top / rowHeight) - EXTRA_ROWS);
      const last = Math.max(0, Math.ceil((window.innerHeight - top) / rowHeight)) + EXTRA_ROWS;
      setRange((old) => (old.from === first && old.to === last ? old : { from: first, to: last }));
    };
    const onScroll = (): void => {
      if (asked === 0) asked = requestAnimationFrame(look);
    };
    look();
    document.addEventListener("scroll", onScroll, { passive: true, capture: true });
    window.addEventListener("resize", onScroll);
    // A change in size of the content above also moves the list.
    const observer = new ResizeObserver(onScroll);
    if (element.parentElement) observer.observe(element.parentElement);
    return () => {
      document.removeEventListener("scroll", onScroll, { capture: true });
      window.removeEventListener("resize", onScroll);
      observer.disconnect();
      if (asked !== 0) cancelAnimationFrame(asked);
    };
  }, [isLong, rowHeight, count]);
  if (!isLong) return { from: 0, to: count, before: 0, after: 0 };
  const to = Math.min(count, Math.max(range.to, 1));
  const from = Math.min(range.from, Math.max(0, to - 1));
  return { from, to, before: from * rowHeight, after: (count - to) * rowHeight };
}
