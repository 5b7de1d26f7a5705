/**
 * Defines the standard streams, environment variables, clock, errors, and colors of gwctl.
 */
import { readFileSync } from "node:fs";
import { type Clock, systemClock } from "../../base/clock.ts";
import { escapeLines, escapeOutput } from "../../base/safe-text.ts";

export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** Clears the screen of an interactive terminal. */
  clear?(): void;
  readonly isInteractive: boolean;
  readonly hasColor: boolean;
  /** The width is in columns. It is undefined if the output is a pipe or a file, and lines are not wrapped then. */
  readonly columns?: number | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readStdin(): string;
}

const MIN_USABLE_COLUMNS = 20;
const CLEAR_SCREEN = "\u001b[H\u001b[2J\u001b[3J";

export function processTerminal(environment: Terminal["environment"]): Terminal {
  // `gwctl … | head` closes the pipe, which is not an error.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  const isInteractive = process.stdout.isTTY === true && process.stdin.isTTY === true && environment.TERM !== "dumb";
  return {
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    clear: () => void process.stdout.write(CLEAR_SCREEN),
    isInteractive,
    hasColor: process.stdout.isTTY === true && (environment.NO_COLOR ?? "") === "" && environment.TERM !== "dumb",
    get columns() {
      return process.stdout.isTTY === true ? process.stdout.columns : undefined;
    },
    environment,
    clock: systemClock,
    readStdin: () => readFileSync(0, "utf8"),
  };
}

/**
 * Returns the terminal with everything that commands print escaped, except the colors that `paintOf` adds. A text from
 * traffic that is printed without `printable` can therefore change colors at most. Widths that no text fits into are
 * undefined.
 */
export function escapingTerminal(terminal: Terminal): Terminal {
  return Object.create(terminal, {
    out: { value: (text: string) => terminal.out(escapeOutput(text)) },
    err: { value: (text: string) => terminal.err(escapeOutput(text)) },
    columns: { get: () => usableColumns(terminal.columns) },
  }) as Terminal;
}

/** Some terminals report 0 columns. */
function usableColumns(columns: number | undefined): number | undefined {
  return columns === undefined || columns < MIN_USABLE_COLUMNS ? undefined : columns;
}

/** Escapes control characters, so that text from traffic cannot move the cursor. Keeps line breaks and tabs. */
export const printable = escapeLines;

export class CliError extends Error {
  readonly exitCode: 1 | 2;

  constructor(message: string, exitCode: 1 | 2 = 1) {
    super(message);
    this.name = "CliError";
    this.exitCode = exitCode;
  }
}

export function usageError(message: string): CliError {
  return new CliError(message, 2);
}

// Colors only repeat information that the text contains. Pass text through `printable` first, so that traffic cannot
// add escape codes.

export type Tone = "good" | "warn" | "bad" | "dim" | "bold";

export interface Paint {
  (text: string, tone: Tone | undefined): string;
  readonly columns?: number | undefined;
}

const CODES: Readonly<Record<Tone, number>> = { good: 32, warn: 33, bad: 31, dim: 2, bold: 1 };

export function paintOf({ hasColor, columns }: Pick<Terminal, "hasColor" | "columns">): Paint {
  const paint: Paint = hasColor
    ? (text, tone) => (tone === undefined || text === "" ? text : `\u001b[${CODES[tone]}m${text}\u001b[0m`)
    : (text) => text;
  return Object.assign(paint, { columns });
}
