/**
 * Writes log lines as text for people or as JSON for machines, filtered per module at run time. Values are escaped, so
 * that external input cannot forge a line.
 */
import type { Clock } from "../../base/clock.ts";
import { escapeControls } from "../../base/safe-text.ts";
import type { LogFilter } from "./log-filter.ts";
import type { LogOutput } from "./log-output.ts";

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

  function loggerFor(module: string): Logger {
    const known = loggers.get(module);
    if (known) return known.logger;
    let rank = filter.levelOf(module);
    const write = (level: LogLevel, message: string, fields?: LogFields): void => {
      if (RANK[level] > rank) return;
      const time = new Date(clock.now()).toISOString();
      const line =
        format === "json"
          ? jsonLine(time, level, module, message, fields)
          : `${time} ${color ? colored(level) : level.padEnd(LEVEL_WIDTH)} ${escapeControls(textOf(module, message, fields))}\n`;
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
  let text = `${module}: ${message}`;
  if (fields) for (const key of Object.keys(fields)) text += textField(key, fields[key]);
  return text;
}

function textField(key: string, value: LogValue): string {
  if (value === undefined) return "";
  if (typeof value === "string") return ` ${key}=${quoteIfNeeded(value)}`;
  return ` ${key}=${typeof value === "object" ? JSON.stringify(value) : value}`;
}

function jsonLine(time: string, level: string, module: string, message: string, fields?: LogFields): string {
  return `${escapeControls(JSON.stringify({ time, level, module, message, ...fields }))}\n`;
}

const PLAIN = /^[!#-<>-~]+$/;

/**
 * Formats the value as JSON if it is empty or contains spaces, double quotes, equals signs, or characters other than
 * printable ASCII.
 */
function quoteIfNeeded(value: string): string {
  return PLAIN.test(value) ? value : JSON.stringify(value);
}
