/**
 * Only the rows that can be seen, of a list of thousands: rows have one height, so which ones are in sight follows from
 * where it stands in the window. Space before and after stands in for the rest.
 */
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

/** Rows beyond the edges: a fast wheel must not show emptiness, and `j` must find the next row. */
const EXTRA_ROWS = 8;
/** Shorter lists are simply drawn. */
const MIN_ROWS = 60;

export interface Windowed {
  readonly from: number;
  readonly to: number;
  /** Heights in pixels of what is not drawn. */
  readonly before: number;
  readonly after: number;
}

/** `list` is the element that holds the rows. */
export function useWindowed(count: number, rowHeight: number, list: RefObject<HTMLElement | null>): Windowed {
  const [range, setRange] = useState({ from: 0, to: MIN_ROWS });
  const isLong = count > MIN_ROWS;
  useEffect(() => {
    const element = list.current;
    if (!isLong || !element) return undefined;
    let asked = 0;
    const look = (): void => {
      asked = 0;
      // Whatever scrolls around the list, no more of it can be seen than the window shows.
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
    // Something above it that grows or goes moves it too.
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
