/**
 * Parses the log filter of spec 4.2, which has a default level and levels per module, such as `info,mcp=trace`.
 * Unknown modules are accepted.
 */

export const LEVELS = ["off", "error", "warn", "info", "debug", "trace"] as const;
export type Level = (typeof LEVELS)[number];

const MAX_FILTER_CHARS = 1024;
const MODULE = /^[A-Za-z0-9_./:-]+$/;

export interface LogFilter {
  readonly text: string;
  /** The result is a number from 0 (off) to 5 (trace). */
  levelOf(module: string): number;
}

export type ParsedFilter = { ok: true; filter: LogFilter } | { ok: false; error: string };

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
