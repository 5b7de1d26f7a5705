/**
 * Where the reader of a trace stands: which event is chosen, which pane listens to the keys, what the detail shows, what is
 * searched for. Pure: a view and a key go in, the next view comes out.
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
  readonly search: string;
  /** Characters belong to the search. */
  readonly isTyping: boolean;
  /** The reader wants to leave. */
  readonly isOver: boolean;
}

export type NamedKey = "up" | "down" | "pageUp" | "pageDown" | "tab" | "escape" | "enter" | "erase";

/** A key that was pressed, and what was on the screen. */
export interface Pressed {
  readonly key: NamedKey | { readonly character: string };
  /** The index of the last event. */
  readonly last: number;
  readonly maxScroll: number;
  readonly paneRows: number;
  /** The next event with the text, before or after another. */
  find(text: string, from: number, by: 1 | -1): number | undefined;
}

export const START: View = {
  chosen: undefined,
  pane: "events",
  mode: "event",
  format: "yaml",
  scroll: 0,
  search: "",
  isTyping: false,
  isOver: false,
};

const MODE_KEYS: Readonly<Record<string, Mode>> = { e: "event", s: "snapshot", d: "diff", w: "waterfall" };
const FAR = Number.MAX_SAFE_INTEGER;

/** Keys can come faster than frames: each builds on the view that the one before left. */
export function step(view: View, pressed: Pressed): View {
  const { key, paneRows } = pressed;
  if (view.isTyping) return typing(view, pressed);
  if (key === "escape") return { ...view, isOver: true };
  if (key === "tab") return { ...view, pane: view.pane === "events" ? "detail" : "events" };
  if (key === "up") return moved(view, pressed, -1);
  if (key === "down") return moved(view, pressed, 1);
  if (key === "pageUp") return moved(view, pressed, -paneRows);
  if (key === "pageDown") return moved(view, pressed, paneRows);
  return typeof key === "string" ? view : commanded(view, pressed, key.character);
}

function commanded(view: View, pressed: Pressed, character: string): View {
  if (character === "q") return { ...view, isOver: true };
  if (character === "/") return { ...view, isTyping: true, search: "" };
  if (character === "n") return found(view, pressed, 1);
  if (character === "N") return found(view, pressed, -1);
  if (character === "k") return moved(view, pressed, -1);
  if (character === "j") return moved(view, pressed, 1);
  if (character === " ") return moved(view, pressed, pressed.paneRows);
  if (character === "g") return moved(view, pressed, -FAR);
  if (character === "G") return moved(view, pressed, FAR);
  if (character === "f") return { ...view, format: view.format === "yaml" ? "json" : "yaml" };
  const mode = MODE_KEYS[character];
  return mode === undefined ? view : { ...view, mode, scroll: 0 };
}

function typing(view: View, pressed: Pressed): View {
  const { key } = pressed;
  if (key === "escape") return { ...view, isTyping: false, search: "" };
  if (key === "erase") return { ...view, search: [...view.search].slice(0, -1).join("") };
  const isEnd = key === "enter" || (typeof key === "object" && /^[\r\n]$/.test(key.character));
  if (isEnd) return found({ ...view, isTyping: false }, pressed, 1);
  // Nothing else can be typed, but it can be pasted.
  const isShown = typeof key === "object" && /^\P{C}$/u.test(key.character);
  return isShown ? { ...view, search: view.search + key.character } : view;
}

function found(view: View, { last, find }: Pressed, by: 1 | -1): View {
  const next = find(view.search, Math.min(view.chosen ?? last, last), by);
  return next === undefined ? view : { ...view, chosen: next === last ? undefined : next, scroll: 0, pane: "events" };
}

function moved(view: View, { last, maxScroll }: Pressed, by: number): View {
  if (view.pane === "detail") return { ...view, scroll: clamp(Math.min(view.scroll, maxScroll) + by, 0, maxScroll) };
  const next = clamp(Math.min(view.chosen ?? last, last) + by, 0, Math.max(0, last));
  return { ...view, chosen: next === last ? undefined : next, scroll: 0 };
}

export function clamp(value: number, min: number, max: number): number {
  return Math.max(min, Math.min(max, value));
}
