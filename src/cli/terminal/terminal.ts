/**
 * What gwctl sees of its surroundings: standard streams, environment, the time. Passed in, so that a command can be
 * run inside a test.
 */
import { readFileSync } from "node:fs";
import { escapeControls } from "../../lib/log/logger.ts";
import { type Clock, systemClock } from "../../lib/process/clock.ts";

export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** Somebody looks at standard output and can press keys. */
  readonly isInteractive: boolean;
  readonly hasColor: boolean;
  /** How wide it is; undefined in a pipe or a file. */
  readonly columns?: number | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readStdin(): string;
}

export function processTerminal(environment: Terminal["environment"]): Terminal {
  // `gwctl … | head` closes the pipe: that is an end, not a failure.
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
