/**
 * Wraps content that scrolls sideways on a narrow screen. The wrapper is focusable only while it can scroll.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function ScrollX({ children }: { children: ComponentChildren }) {
  const frame = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useEffect(() => {
    if (!frame.current) return undefined;
    const observer = new ResizeObserver(([entry]) => {
      const element = entry?.target.parentElement;
      if (element) setScrolls(element.scrollWidth > element.clientWidth);
    });
    if (frame.current.firstElementChild) observer.observe(frame.current.firstElementChild);
    return () => observer.disconnect();
  }, []);
  return (
    <div
      class="scroll-x"
      ref={frame}
      {...(scrolls ? { tabIndex: 0, role: "group", "aria-label": "scrolls sideways" } : {})}
    >
      <div class="scrolled">{children}</div>
    </div>
  );
}
