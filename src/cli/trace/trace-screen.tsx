/**
 * Implements the terminal UI of `gwctl proxy trace`: a list of events, and the details of the selected event. It is
 * imported on demand, because its library is slow to load.
 */
import { constants } from "node:os";
import { Box, render, Text, type TextProps, useApp, useInput, useStdout } from "ink";
import { useEffect, useReducer, useState, useSyncExternalStore } from "react";
import { escapeControls } from "../../base/safe-text.ts";
import type { Severity, TraceEvent } from "../../record/trace/record.ts";
import { wrapWords } from "../terminal/table.ts";
import {
  barsOf,
  type DetailLine,
  diffLines,
  drawBars,
  eventLines,
  type Format,
  snapshotLines,
} from "./trace-details.ts";
import type { TraceView } from "./trace-source.ts";
import { duration, labelOf, sinceStart, summaryOf } from "./trace-text.ts";

const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;
/** Counts the rows of the title, the status line, the help line, and the two pane borders. */
const CHROME_ROWS = 5;
const TIME_CHARS = 9;

/** Resized terminals keep parts of the alternate screen, so it is cleared before switching back. */
const ENTER_SCREEN = "\u001b[?1049h\u001b[H";
const LEAVE_SCREEN = "\u001b[2J\u001b[H\u001b[?1049l";

const MODES: Readonly<Record<Mode, string>> = {
  event: "Event",
  snapshot: "Snapshot",
  diff: "Changes",
  waterfall: "Waterfall",
};
const HELP = "↑↓ tab  / find  e event  s snapshot  d changes  w waterfall  f format  q quit";
const TYPING_HELP = "enter find  esc cancel  (then n next, N previous)";
const COLORS: Readonly<Record<Severity, string | undefined>> = { info: undefined, warn: "yellow", error: "red" };
const MARKS: Readonly<Record<Severity, string>> = { info: " ", warn: "!", error: "✗" };

const EMPTY: readonly DetailLine[] = [
  { text: "Send a request: its steps" },
  { text: "appear here as they" },
  { text: "happen." },
];

export interface ScreenProps {
  readonly title: string;
  readonly store: TraceStore;
  readonly hasColor: boolean;
}

export function TraceScreen({ title, store, hasColor }: ScreenProps) {
  const { events, status } = useSyncExternalStore(store.subscribe, store.state);
  const { columns, rows } = useSize();
  const { exit } = useApp();
  const [view, act] = useReducer(step, START);
  const { pane, mode, format } = view;

  const paneRows = Math.max(3, rows - 1 - CHROME_ROWS);
  const listWidth = Math.floor((columns * (mode === "waterfall" ? 2 : 3)) / 5);
  const detailWidth = columns - listWidth;
  const last = events.length - 1;
  const selected = Math.min(view.chosen ?? last, last);
  const details = detailOf(mode, events, selected, format, detailWidth - 4);
  const maxScroll = Math.max(0, details.length - paneRows);
  const top = Math.min(view.scroll, maxScroll);
  const visible = details.slice(top, top + paneRows).map((line, i) => ({ row: top + i, line }));

  const matches = matchesOf(events, view.search);
  const press = (key: Pressed["key"]): void =>
    act({
      key,
      last,
      maxScroll,
      paneRows,
      find: (text, from, by) => nextMatch(matchesOf(events, text), from, by),
    });
  useInput((input, key) => {
    if (key.escape) press("escape");
    else if (key.return) press("enter");
    else if (key.backspace || key.delete) press("erase");
    else if (key.tab) press("tab");
    else if (key.upArrow) press("up");
    else if (key.downArrow) press("down");
    else if (key.pageUp) press("pageUp");
    else if (key.pageDown) press("pageDown");
    // Fast typing and pasting deliver several characters in one call.
    else if (!key.ctrl && !key.meta) for (const character of input) press({ character });
  });
  useEffect(() => {
    if (view.isOver) exit();
  }, [view.isOver]);

  const event = events[selected];
  const took = event && event.eventStart !== null ? ` ${duration(event.eventEnd - event.eventStart)}` : "";
  return (
    <Box flexDirection="column" width={columns} height={rows - 1}>
      <Text wrap="truncate">
        <Shown bold>{`Trace ${title}`}</Shown>
        <Shown dimColor>{"  experimental"}</Shown>
      </Text>
      <Box height={paneRows + 2}>
        <Frame title="Events" isActive={pane === "events"} width={listWidth} hasColor={hasColor}>
          <EventList
            events={events}
            selected={selected}
            rows={paneRows}
            width={listWidth - 4}
            hasTimes={mode !== "waterfall"}
            hasColor={hasColor}
          />
        </Frame>
        <Frame
          title={`${MODES[mode]}${took}${maxScroll > 0 ? ` ${top + 1}-${top + paneRows}/${details.length}` : ""}`}
          isActive={pane === "detail"}
          width={detailWidth}
          hasColor={hasColor}
        >
          {visible.map(({ row, line }) => (
            <DetailText key={row} line={line} hasColor={hasColor} />
          ))}
        </Frame>
      </Box>
      <Shown wrap="truncate">
        {view.isTyping
          ? `/${view.search}█`
          : view.search === ""
            ? status
            : `${status}  ${searchText(view.search, matches, selected)}`}
      </Shown>
      <Shown wrap="truncate" dimColor={hasColor}>
        {view.isTyping ? TYPING_HELP : HELP}
      </Shown>
    </Box>
  );
}

/** Ink passes control characters to the terminal, so every text of the screen is escaped here. */
function Shown({ children, ...style }: TextProps & { readonly children: string }) {
  return <Text {...style}>{escapeControls(children)}</Text>;
}

function Frame(props: {
  readonly title: string;
  readonly isActive: boolean;
  readonly width: number;
  readonly hasColor: boolean;
  readonly children: React.ReactNode;
}) {
  const { title, isActive, width, hasColor, children } = props;
  const color = hasColor && isActive ? { borderColor: "cyan" } : {};
  return (
    <Box flexDirection="column" width={width} borderStyle={isActive ? "bold" : "single"} {...color} paddingX={1}>
      {children}
      <Box position="absolute" marginTop={-1} marginLeft={1}>
        <Shown bold={isActive} wrap="truncate">{` ${title.slice(0, Math.max(0, width - 6))} `}</Shown>
      </Box>
    </Box>
  );
}

function EventList(props: {
  readonly events: readonly TraceEvent[];
  readonly selected: number;
  readonly rows: number;
  readonly width: number;
  readonly hasTimes: boolean;
  readonly hasColor: boolean;
}) {
  const { events, selected, rows, width, hasTimes, hasColor } = props;
  const first = clamp(selected - Math.floor(rows / 2), 0, Math.max(0, events.length - rows));
  return events.slice(first, first + rows).map((event, i) => {
    const index = first + i;
    const isSelected = index === selected;
    const color = hasColor ? COLORS[event.severity] : undefined;
    const time = hasTimes ? `${sinceStart(event, events[0]).padStart(TIME_CHARS)} ` : "";
    const text = `${isSelected ? "›" : " "}${String(index + 1).padStart(3)} ${MARKS[event.severity] ?? " "} ${time}${labelOf(event).padEnd(14)} ${summaryOf(event)}`;
    return (
      <Shown key={`${index}`} wrap="truncate" inverse={isSelected} {...(color ? { color } : {})}>
        {isSelected ? text.padEnd(width) : text}
      </Shown>
    );
  });
}

function DetailText({ line, hasColor }: { readonly line: DetailLine; readonly hasColor: boolean }) {
  const color = !hasColor || line.change === undefined ? {} : { color: line.change === "added" ? "green" : "red" };
  return (
    <Shown wrap="truncate" {...color}>
      {line.text === "" ? " " : line.text}
    </Shown>
  );
}

function detailOf(
  mode: Mode,
  events: readonly TraceEvent[],
  selected: number,
  format: Format,
  width: number,
): DetailLine[] {
  const event = events[selected];
  if (!event) return wrapped(EMPTY, width);
  if (mode === "snapshot") return wrapped(snapshotLines(events, selected, format), width);
  if (mode === "diff") return wrapped(diffLines(events, selected), width);
  if (mode === "waterfall")
    return drawBars(barsOf(events), width).map(({ text, failed }) =>
      failed ? { text, change: "removed" as const } : { text },
    );
  return wrapped(eventLines(event, format), width);
}

function wrapped(lines: readonly DetailLine[], width: number): DetailLine[] {
  return lines.flatMap((line) => wrapWords(line.text, width).map((text) => ({ ...line, text })));
}

function useSize(): { columns: number; rows: number } {
  const { stdout } = useStdout();
  const read = () => ({ columns: stdout.columns || DEFAULT_COLUMNS, rows: stdout.rows || DEFAULT_ROWS });
  const [size, setSize] = useState(read);
  useEffect(() => {
    const resized = (): void => setSize(read());
    stdout.on("resize", resized);
    return () => void stdout.off("resize", resized);
  }, []);
  return size;
}

export interface OpenScreen extends TraceView {
  complete(): void;
  close(): void;
}

export function openTraceScreen({ title, hasColor }: { title: string; hasColor: boolean }): OpenScreen {
  const store = createTraceStore();
  process.stdout.write(ENTER_SCREEN);
  // Ink does not restore the terminal when a signal ends the process.
  const restore = (signal: "SIGTERM" | "SIGHUP") => (): void => {
    app.unmount();
    process.stdout.write(LEAVE_SCREEN);
    process.exit(128 + constants.signals[signal]);
  };
  const handlers = (["SIGTERM", "SIGHUP"] as const).map((signal) => [signal, restore(signal)] as const);
  for (const [signal, handler] of handlers) process.on(signal, handler);
  const app = render(<TraceScreen title={title} store={store} hasColor={hasColor} />, { patchConsole: false });
  const closed = app.waitUntilExit().then(() => {
    for (const [signal, handler] of handlers) process.off(signal, handler);
    process.stdout.write(LEAVE_SCREEN);
  });
  return {
    event: store.add,
    status: store.status,
    complete: store.complete,
    close: () => app.unmount(),
    closed,
  };
}

// An event matches if its row or its message contains the search string, ignoring case.

export function matchesOf(events: readonly TraceEvent[], text: string): number[] {
  const wanted = text.toLowerCase();
  if (wanted === "") return [];
  return events.flatMap((event, index) => (textOf(event).includes(wanted) ? [index] : []));
}

/** Searches forward or backward and wraps around. Returns undefined if there are no matches. */
export function nextMatch(matches: readonly number[], from: number, by: 1 | -1): number | undefined {
  if (by === 1) return matches.find((index) => index > from) ?? matches[0];
  return matches.findLast((index) => index < from) ?? matches.at(-1);
}

export function searchText(text: string, matches: readonly number[], selected: number): string {
  const at = matches.indexOf(selected);
  if (matches.length === 0) return `no event with "${text}"`;
  const events = matches.length === 1 ? "1 event" : `${matches.length} events`;
  return at < 0 ? `"${text}": ${events}` : `"${text}": ${at + 1} of ${events}`;
}

function textOf(event: TraceEvent): string {
  return `${labelOf(event)} ${summaryOf(event)} ${JSON.stringify(event.message)}`.toLowerCase();
}

export interface TraceState {
  readonly events: readonly TraceEvent[];
  readonly status: string;
  readonly isComplete: boolean;
}

export interface TraceStore {
  state(): TraceState;
  subscribe(listener: () => void): () => void;
  add(event: TraceEvent): void;
  status(text: string): void;
  complete(): void;
}

export function createTraceStore(): TraceStore {
  const events: TraceEvent[] = [];
  let status = "waiting for trace data";
  let isComplete = false;
  const listeners = new Set<() => void>();
  /** React requires the same object until the state changes. */
  let seen: TraceState | undefined;
  let isScheduled = false;
  const counted = (): string => (events.length === 1 ? "1 event" : `${events.length} events`);
  const changed = (): void => {
    seen = undefined;
    if (isScheduled) return;
    isScheduled = true;
    queueMicrotask(() => {
      isScheduled = false;
      for (const listener of listeners) listener();
    });
  };
  return {
    state() {
      seen ??= { events: [...events], status, isComplete };
      return seen;
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    add(event) {
      events.push(event);
      status = counted();
      changed();
    },
    status(text) {
      status = text.split("\n", 1)[0] ?? "";
      changed();
    },
    complete() {
      status = `${counted()}, complete`;
      isComplete = true;
      changed();
    },
  };
}

export type Mode = "event" | "snapshot" | "diff" | "waterfall";
export type Pane = "events" | "detail";

export interface View {
  readonly chosen: number | undefined;
  readonly pane: Pane;
  readonly mode: Mode;
  readonly format: Format;
  readonly scroll: number;
  readonly search: string;
  readonly isTyping: boolean;
  readonly isOver: boolean;
}

export type NamedKey = "up" | "down" | "pageUp" | "pageDown" | "tab" | "escape" | "enter" | "erase";

export interface Pressed {
  readonly key: NamedKey | { readonly character: string };
  readonly last: number;
  readonly maxScroll: number;
  readonly paneRows: number;
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
