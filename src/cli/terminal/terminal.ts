/**
 * The environment of gwctl: standard streams, variables, and time. Passed in, so that tests can run commands.
 */
import { readFileSync } from "node:fs";
import { parse, stringify } from "yaml";
import { type Clock, systemClock } from "../../base/clock.ts";
import { escapeControls } from "../../observe/log/logger.ts";

export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** Standard output is a terminal, and keys can be read. */
  readonly isInteractive: boolean;
  readonly hasColor: boolean;
  /** How wide it is; undefined in a pipe or a file. */
  readonly columns?: number | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readStdin(): string;
}

export function processTerminal(environment: Terminal["environment"]): Terminal {
  // `gwctl … | head` closes the pipe, which is not a failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  const isInteractive = process.stdout.isTTY === true && process.stdin.isTTY === true && environment.TERM !== "dumb";
  return {
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    isInteractive,
    hasColor: process.stdout.isTTY === true && (environment.NO_COLOR ?? "") === "" && environment.TERM !== "dumb",
    // Asked each time: windows change their size.
    get columns() {
      return process.stdout.isTTY === true ? process.stdout.columns : undefined;
    },
    environment,
    clock: systemClock,
    readStdin: () => readFileSync(0, "utf8"),
  };
}

/** Text from traffic, safe to print: no character of it moves the cursor. Line breaks and tabs stay. */
export function printable(text: string): string {
  return text.split("\n").map(escapeControls).join("\n");
}

/**
 * The failure of a command: one line that says how to fix it, and an exit code. 1: the command failed. 2: wrong usage.
 */

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

/**
 * Colors with a meaning, on terminals that show them; without them the words say the same. Applied to text that is
 * already printable: what traffic wrote never brings codes of its own.
 */

export type Tone = "good" | "warn" | "bad" | "dim" | "bold";

export interface Paint {
  (text: string, tone: Tone | undefined): string;
  /** How wide the terminal is; undefined where nobody looks, for example in a pipe. */
  readonly columns?: number | undefined;
}

const CODES: Readonly<Record<Tone, number>> = { good: 32, warn: 33, bad: 31, dim: 2, bold: 1 };

export function paintOf({ hasColor, columns }: Pick<Terminal, "hasColor" | "columns">): Paint {
  const paint: Paint = hasColor
    ? (text, tone) => (tone === undefined || text === "" ? text : `\u001b[${CODES[tone]}m${text}\u001b[0m`)
    : (text) => text;
  return Object.assign(paint, { columns });
}

/** The tone of an HTTP status; none for what went well, so that the rest stands out. */
export function statusTone(status: number | null): Tone | undefined {
  if (status === null || status >= 500) return "bad";
  return status >= 400 ? "warn" : undefined;
}

/**
 * Values as YAML text. A file of its own, loaded when it is needed: the library is large, and bundled it can be
 * named only by an import that is not lazy.
 */

/** Plain strings that YAML 1.1 readers take for booleans are quoted; no anchors for values that repeat. */
export function yamlText(value: unknown): string {
  return stringify(value, { version: "1.2", compat: "yaml-1.1", aliasDuplicateObjects: false, lineWidth: 0 });
}

/** Throws with the place and the reason; JSON is YAML too. */
export function parseYaml(text: string): unknown {
  return parse(text, { maxAliasCount: 100 });
}
