/**
 * Writes log lines as text for people or as JSON for machines, filtered per module at run time (spec 4.2). Values are
 * escaped, so that external input cannot forge a line. Repeated lines and unexpected exceptions are limited.
 */
import type { Clock } from "../../base/clock.ts";
import { escapeControls } from "../../base/safe-text.ts";
import type { LogOutput } from "./log-output.ts";
import type { Metrics } from "./metrics.ts";

export const LEVELS = ["off", "error", "warn", "info", "debug", "trace"] as const;
export type Level = (typeof LEVELS)[number];

const MAX_FILTER_CHARS = 1024;
const MODULE = /^[A-Za-z0-9_./:-]+$/;

export interface LogFilter {
  readonly text: string;
  /** The result is a number from 0 (off) to 5 (trace). */
  levelOf(module: string): number;
}

type ParsedFilter = { ok: true; filter: LogFilter } | { ok: false; error: string };

export function parseLogFilter(text: string): ParsedFilter {
  if (text.length > MAX_FILTER_CHARS) return rejected("the filter is longer than 1024 characters");
  let base: Level | undefined;
  const modules = new Map<string, Level>();
  for (const clause of text.split(",").map((part) => part.trim())) {
    const equals = clause.indexOf("=");
    const name = equals < 0 ? undefined : clause.slice(0, equals).trim();
    const level = (equals < 0 ? clause : clause.slice(equals + 1).trim()).toLowerCase();
    if (!isLevel(level)) return rejected(`${JSON.stringify(level)} is not a level`);
    if (name === undefined) base = level;
    else if (MODULE.test(name)) modules.set(name, level);
    else return rejected(`${JSON.stringify(name)} is not a module name`);
  }
  return { ok: true, filter: createFilter(base ?? "info", modules) };
}

function createFilter(base: Level, modules: Map<string, Level>): LogFilter {
  return {
    text: [...[...modules].map(([name, level]) => `${name}=${level}`), base].reverse().join(","),
    levelOf: (module) => LEVELS.indexOf(modules.get(module) ?? base),
  };
}

function rejected(reason: string): ParsedFilter {
  return { ok: false, error: `${reason}; use ${LEVELS.join(", ")}, or module=level, separated by commas` };
}

function isLevel(text: string): text is Level {
  return (LEVELS as readonly string[]).includes(text);
}

export type LogFormat = "text" | "json";
export type LogFields = Readonly<Record<string, LogValue>>;
export type LogValue = string | number | boolean | null | undefined | readonly string[];

export interface Logger {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  debug(message: string, fields?: LogFields): void;
  trace(message: string, fields?: LogFields): void;
  /** Lets callers skip building expensive fields. */
  enabled(level: LogLevel): boolean;
  for(module: string): Logger;
}

export type LogLevel = "error" | "warn" | "info" | "debug" | "trace";
const RANK: Record<LogLevel, number> = { error: 1, warn: 2, info: 3, debug: 4, trace: 5 };

export interface Logging {
  readonly logger: Logger;
  readonly filter: LogFilter;
  setFilter(filter: LogFilter): void;
  setFormat(format: LogFormat): void;
  /** All later lines pass through this function, which redacts secrets. */
  setRedactor(redact: (line: string) => string): void;
}

export function createLogging(options: {
  clock: Clock;
  output: LogOutput;
  filter: LogFilter;
  format: LogFormat;
  color?: boolean;
}): Logging {
  const { clock, output, color = false } = options;
  let { filter, format } = options;
  let redact = (line: string): string => line;
  const loggers = new Map<string, { logger: Logger; refresh(): void }>();

  let lastMs = Number.NaN;
  let lastTime = "";

  /** Lines of the same millisecond share their time. */
  function timeText(nowMs: number): string {
    if (nowMs !== lastMs) lastTime = new Date(nowMs).toISOString();
    lastMs = nowMs;
    return lastTime;
  }

  function loggerFor(module: string): Logger {
    const known = loggers.get(module);
    if (known) return known.logger;
    let rank = filter.levelOf(module);
    const write = (level: LogLevel, message: string, fields?: LogFields): void => {
      if (RANK[level] > rank) return;
      const time = timeText(clock.now());
      const line =
        format === "json"
          ? jsonLine(time, level, module, message, fields)
          : `${time} ${color ? colored(level) : level.padEnd(LEVEL_WIDTH)} ${textOf(module, message, fields)}\n`;
      output.write(redact(line));
    };
    const logger: Logger = {
      error: (message, fields) => write("error", message, fields),
      warn: (message, fields) => write("warn", message, fields),
      info: (message, fields) => write("info", message, fields),
      debug: (message, fields) => write("debug", message, fields),
      trace: (message, fields) => write("trace", message, fields),
      enabled: (level) => RANK[level] <= rank,
      for: loggerFor,
    };
    loggers.set(module, {
      logger,
      refresh: () => {
        rank = filter.levelOf(module);
      },
    });
    return logger;
  }

  return {
    logger: loggerFor("app"),
    get filter() {
      return filter;
    },
    setFilter(next) {
      filter = next;
      for (const entry of loggers.values()) entry.refresh();
    },
    setFormat(next) {
      format = next;
    },
    setRedactor(next) {
      redact = next;
    },
  };
}

export const silentLogger: Logger = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
  trace: () => undefined,
  enabled: () => false,
  for: () => silentLogger,
};

const LEVEL_WIDTH = 5;
const COLORS: Readonly<Record<LogLevel, number>> = { error: 31, warn: 33, info: 32, debug: 36, trace: 90 };

function colored(level: LogLevel): string {
  return `\u001b[${COLORS[level]}m${level.padEnd(LEVEL_WIDTH)}\u001b[0m`;
}

function textOf(module: string, message: string, fields?: LogFields): string {
  let text = escapeControls(`${module}: ${message}`);
  if (fields)
    for (const key in fields) {
      const value = fields[key];
      if (value === undefined) continue;
      text += ` ${shownKey(key)}=`;
      if (typeof value === "string") text += quoteIfNeeded(value);
      else text += typeof value === "object" ? escapeControls(JSON.stringify(value)) : value;
    }
  return text;
}

/** Only the configuration and the code choose keys. */
const shownKeys = new Map<string, string>();
const CACHED_KEYS = 1_000;

function shownKey(key: string): string {
  const known = shownKeys.get(key);
  if (known !== undefined) return known;
  const shown = escapeControls(key);
  if (shownKeys.size < CACHED_KEYS) shownKeys.set(key, shown);
  return shown;
}

function jsonLine(time: string, level: string, module: string, message: string, fields?: LogFields): string {
  return `${escapeControls(JSON.stringify({ time, level, module, message, ...fields }))}\n`;
}

/**
 * Formats the value as JSON if it is empty or contains spaces, double quotes, equals signs, or characters other than
 * printable ASCII.
 */
function quoteIfNeeded(value: string): string {
  for (let i = 0; i < value.length; i++) {
    const code = value.charCodeAt(i);
    if (code <= 0x20 || code >= 0x7f || code === 0x22 || code === 0x3d) return escapeControls(JSON.stringify(value));
  }
  return value === "" ? '""' : value;
}

const PAUSES_MS = [10_000, 60_000, 600_000];
/** A kind that was silent for this long is logged as new. */
const RESET_AFTER_MS = 600_000;
/** Beyond this number, the least recent kind is forgotten. */
const REMEMBERED_KINDS = 200;

interface Repeat {
  lastMs: number;
  writtenMs: number;
  written: number;
  unwritten: number;
}

export function foldRepeats(logger: Logger, clock: Clock): Logger {
  const kinds = new Map<string, Repeat>();

  function folded(level: "warn" | "error", message: string, fields: LogFields | undefined): void {
    const nowMs = clock.monotonicMs();
    const key = JSON.stringify([level, message, fields]);
    const known = kinds.get(key);
    kinds.delete(key);
    const pauseMs = PAUSES_MS[Math.min((known?.written ?? 1) - 1, PAUSES_MS.length - 1)] ?? 0;
    const repeat = known === undefined || nowMs - known.lastMs >= RESET_AFTER_MS ? fresh(nowMs) : known;
    kinds.set(key, repeat);
    if (kinds.size > REMEMBERED_KINDS) kinds.delete(kinds.keys().next().value as string);
    repeat.lastMs = nowMs;
    if (repeat.written > 0 && nowMs - repeat.writtenMs < pauseMs) {
      repeat.unwritten += 1;
      return;
    }
    const count = repeat.unwritten + 1;
    logger[level](message, repeat.written === 0 ? fields : { ...fields, times: count });
    repeat.writtenMs = nowMs;
    repeat.written += 1;
    repeat.unwritten = 0;
  }

  return {
    ...logger,
    error: (message, fields) => folded("error", message, fields),
    warn: (message, fields) => folded("warn", message, fields),
    for: (module) => foldRepeats(logger.for(module), clock),
  };
}

function fresh(nowMs: number): Repeat {
  return { lastMs: nowMs, writtenMs: nowMs, written: 0, unwritten: 0 };
}

type UnexpectedSource = "request" | "connection" | "process";

/** Counts unexpected exceptions and logs them with their stack, up to a limit. */
export interface UnexpectedErrors {
  report(source: UnexpectedSource, error: unknown, fields?: Readonly<Record<string, string | undefined>>): void;
}

const MAX_LINES = 20;
const LINES_WINDOW_MS = 10_000;
const MAX_MESSAGE_CHARS = 300;
const MAX_STACK_LINES = 20;

export function createUnexpectedErrors(env: {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
}): UnexpectedErrors {
  const { clock, logger, metrics } = env;
  const family = metrics.counter(
    "gateway_unexpected_errors_total",
    "Unexpected exceptions, by the place that caught them. Each is a bug: alert on any increase.",
    ["source"],
  );
  // The counters are exported as 0 from the start, because an alert on an increase needs a previous value.
  const counters = {
    request: family.labels("request"),
    connection: family.labels("connection"),
    process: family.labels("process"),
  };
  let windowEndsMs = Number.NEGATIVE_INFINITY;
  let lines = 0;
  return {
    report(source, error, fields = {}) {
      counters[source].add();
      const nowMs = clock.monotonicMs();
      if (nowMs >= windowEndsMs) {
        if (lines > MAX_LINES) logger.error("more unexpected errors were not logged", { count: lines - MAX_LINES });
        windowEndsMs = nowMs + LINES_WINDOW_MS;
        lines = 0;
      }
      lines += 1;
      if (lines <= MAX_LINES) logger.error("unexpected error", { source, ...fields, error: describeDefect(error) });
    },
  };
}

/** Removes text in quotes from the message, because it may be input. */
export function describeDefect(error: unknown): string {
  if (!(error instanceof Error)) return `thrown value of type ${typeof error}`;
  const message = error.message.replace(/(["'`])[\s\S]*\1/g, "$1…$1").slice(0, MAX_MESSAGE_CHARS);
  const places = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  return [`${error.name}: ${message}`, ...places.slice(0, MAX_STACK_LINES)].join("\n");
}
