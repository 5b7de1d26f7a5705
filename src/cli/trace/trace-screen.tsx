/**
 * The terminal UI of `gwctl proxy trace`: the events on the left, one of them in detail on the right. Loaded only
 * when it is shown, because its library costs more time than all the rest of gwctl.
 */
import { constants } from "node:os";
import { Box, render, Text, useApp, useInput, useStdout } from "ink";
import { useEffect, useReducer, useState, useSyncExternalStore } from "react";
import type { Severity, TraceEvent } from "../../trace/events.ts";
import { wrapWords } from "../terminal/text-width.ts";
import { type DetailLine, diffLines, eventLines, type Format, snapshotLines } from "./trace-details.ts";
import { clamp, type Mode, type Pressed, START, step } from "./trace-navigation.ts";
import { matchesOf, nextMatch, searchText } from "./trace-search.ts";
import { createTraceStore, type TraceStore } from "./trace-store.ts";
import { duration, labelOf, sinceStart, summaryOf } from "./trace-text.ts";
import type { TraceView } from "./trace-view.ts";
import { barsOf, drawBars } from "./waterfall.ts";

/** What a terminal without a size (a pipe, a test) is taken for. */
const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;
/** Title, two lines of help, and the frames of the panes. */
const CHROME_ROWS = 5;
/** `+999.9 ms`. */
const TIME_CHARS = 9;

/** The alternate screen; emptied before it is left, because terminals that were resized bring parts of it along. */
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

/** Shown until the first event. */
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
  // Bars need room more than summaries do.
  const listWidth = Math.floor((columns * (mode === "waterfall" ? 2 : 3)) / 5);
  const detailWidth = columns - listWidth;
  const last = events.length - 1;
  // Follows the last event until the reader chooses one.
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
    // Characters that were typed fast come together.
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
        <Text bold>{`Trace ${title}`}</Text>
        <Text dimColor>{"  experimental"}</Text>
      </Text>
      <Box height={paneRows + 2}>
        <Frame title="Events" isActive={pane === "events"} width={listWidth} hasColor={hasColor}>
          <EventList
            events={events}
            selected={selected}
            rows={paneRows}
            width={listWidth - 4}
            // Beside the bars there is no room for them, and no need.
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
      <Text wrap="truncate">
        {view.isTyping
          ? `/${view.search}█`
          : view.search === ""
            ? status
            : `${status}  ${searchText(view.search, matches, selected)}`}
      </Text>
      <Text wrap="truncate" dimColor={hasColor}>
        {view.isTyping ? TYPING_HELP : HELP}
      </Text>
    </Box>
  );
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
        <Text bold={isActive} wrap="truncate">{` ${title.slice(0, Math.max(0, width - 6))} `}</Text>
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
      <Text key={`${index}`} wrap="truncate" inverse={isSelected} {...(color ? { color } : {})}>
        {isSelected ? text.padEnd(width) : text}
      </Text>
    );
  });
}

function DetailText({ line, hasColor }: { readonly line: DetailLine; readonly hasColor: boolean }) {
  const color = !hasColor || line.change === undefined ? {} : { color: line.change === "added" ? "green" : "red" };
  return (
    <Text wrap="truncate" {...color}>
      {line.text === "" ? " " : line.text}
    </Text>
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

/** A long value goes on in the next line: nothing in the detail pane is cut off. */
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

/** Takes over the terminal until `q` is pressed; the screen that was there before comes back. */
export function openTraceScreen({ title, hasColor }: { title: string; hasColor: boolean }): OpenScreen {
  const store = createTraceStore();
  process.stdout.write(ENTER_SCREEN);
  // Whoever ends us from outside wants his terminal back too.
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
