/**
 * Where the reader of a trace stands: which event is chosen, which pane listens to the keys, what the detail shows.
 * Pure: a view and an action go in, the next view comes out.
 */
import type { Format } from "./trace-details.ts";

export type Mode = "event" | "snapshot" | "diff" | "waterfall";
export type Pane = "events" | "detail";

export interface View {
  /** Undefined while the screen follows the last event. */
  readonly chosen: number | undefined;
  readonly pane: Pane;
  readonly mode: Mode;
  readonly format: Format;
  readonly scroll: number;
}

export type Action = "pane" | "format" | { mode: Mode } | { move: number; last: number; maxScroll: number };

export const START: View = { chosen: undefined, pane: "events", mode: "event", format: "yaml", scroll: 0 };

/** Keys can come faster than frames: each builds on the view that the one before left. */
export function step(view: View, action: Action): View {
  if (action === "pane") return { ...view, pane: view.pane === "events" ? "detail" : "events" };
  if (action === "format") return { ...view, format: view.format === "yaml" ? "json" : "yaml" };
  if ("mode" in action) return { ...view, mode: action.mode, scroll: 0 };
  const { move, last, maxScroll } = action;
  if (view.pane === "detail") return { ...view, scroll: clamp(Math.min(view.scroll, maxScroll) + move, 0, maxScroll) };
  const next = clamp(Math.min(view.chosen ?? last, last) + move, 0, Math.max(0, last));
  return { ...view, chosen: next === last ? undefined : next, scroll: 0 };
}

export function clamp(value: number, min: number, max: number): number {
  return Math.max(min, Math.min(max, value));
}
