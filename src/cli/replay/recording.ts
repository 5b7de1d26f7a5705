/**
 * A line of a recording, as `gwctl record` writes it and `gwctl replay` reads it: what was sent without body and
 * credentials, and how it ended.
 */
import { CliError } from "../terminal/cli-error.ts";

export interface RecordedLine {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly method: string;
  readonly host: string;
  readonly path: string;
  readonly query: string;
  readonly route: string | null;
  readonly status: number | null;
  readonly code: string | null;
  readonly policies: readonly string[];
  /** name, value, name, value, … */
  readonly headers: readonly string[];
}

/** Undefined for an empty line. */
export function readLine(text: string, where: string): RecordedLine | undefined {
  if (text.trim() === "") return undefined;
  let value: Partial<RecordedLine> | null;
  try {
    value = JSON.parse(text) as Partial<RecordedLine> | null;
  } catch {
    throw new CliError(`${where}: not JSON; is this a recording of gwctl record?`);
  }
  const isRecord =
    typeof value?.at === "number" &&
    typeof value.method === "string" &&
    typeof value.path === "string" &&
    value.path.startsWith("/") &&
    typeof value.query === "string" &&
    Array.isArray(value.headers) &&
    value.headers.every((part) => typeof part === "string") &&
    Array.isArray(value.policies);
  if (!isRecord) throw new CliError(`${where}: no recorded request; is this a recording of gwctl record?`);
  return value as RecordedLine;
}
