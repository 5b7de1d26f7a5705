/**
 * Provides page sections with a heading, and placeholders for empty and loading sections.
 */
import type { ComponentChildren } from "preact";
import { ScrollX } from "./scroll-x.tsx";

export function Panel({
  title,
  end,
  children,
  flush = false,
  isTall = false,
  below,
  id,
}: {
  title: ComponentChildren;
  end?: ComponentChildren;
  children: ComponentChildren;
  /** Removes the padding, for tables. */
  flush?: boolean;
  /** Fills the height of the window. */
  isTall?: boolean;
  /** This content is below a table and does not scroll sideways with it. */
  below?: ComponentChildren;
  id?: string;
}) {
  return (
    <section class={isTall ? "panel tall" : "panel"} id={id}>
      <header>
        <h2>{title}</h2>
        {end === undefined ? null : <div class="end">{end}</div>}
      </header>
      {flush ? <ScrollX>{children}</ScrollX> : <div class="body">{children}</div>}
      {below}
    </section>
  );
}

export function Empty({ title, children, yaml }: { title: string; children?: ComponentChildren; yaml?: string }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children}
      {yaml === undefined ? null : <pre>{yaml}</pre>}
    </div>
  );
}

export function Skeleton({ lines = 4 }: { lines?: number }) {
  const widths = ["72%", "48%", "64%", "36%"];
  return (
    <div class="skeleton" role="status" aria-label="loading">
      {Array.from({ length: lines }, (_unused, i) => (
        <span key={i} style={{ width: widths[i % widths.length] ?? "50%" }} />
      ))}
    </div>
  );
}

export function PageHead({ title, doc, children }: { title: string; doc?: string; children?: ComponentChildren }) {
  return (
    <div class="page-head">
      <h1>{title}</h1>
      {doc === undefined ? null : <p>{doc}</p>}
      {children === undefined ? null : <div class="end">{children}</div>}
    </div>
  );
}
