/**
 * A button that opens a small panel below it. Esc, a click or focus outside, a submitted form, and a followed link close
 * the panel.
 */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export function Popover({
  label,
  title,
  children,
}: {
  label: ComponentChildren;
  /** Names the panel for screen readers. */
  title: string;
  children: ComponentChildren;
}) {
  const [isOpen, setIsOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const close = (): void => {
    setIsOpen(false);
    button.current?.focus();
  };
  // A key that follows at once must reach the panel, so the effect does not wait for the next frame.
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    panel.current?.querySelector<HTMLElement>("input, select, button, a")?.focus();
    const onOutside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) setIsOpen(false);
    };
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
    };
    const onLink = (event: Event): void => {
      if ((event.target as Element).closest("a")) setIsOpen(false);
    };
    panel.current?.addEventListener("submit", close);
    panel.current?.addEventListener("click", onLink);
    document.addEventListener("pointerdown", onOutside);
    document.addEventListener("focusin", onOutside);
    // Esc must close only the panel, so other shortcuts do not receive the key.
    document.addEventListener("keydown", onKey, true);
    return () => {
      document.removeEventListener("pointerdown", onOutside);
      document.removeEventListener("focusin", onOutside);
      document.removeEventListener("keydown", onKey, true);
    };
  }, [isOpen]);
  return (
    <div class="popover" ref={root}>
      <button ref={button} type="button" class="button" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
        {label}
      </button>
      {isOpen ? (
        <div ref={panel} class="popover-panel" role="dialog" aria-label={title}>
          {children}
        </div>
      ) : null}
    </div>
  );
}
