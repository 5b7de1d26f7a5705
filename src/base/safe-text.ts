/**
 * Escapes the characters that can forge output: C0 and C1 controls, line separators, and bidirectional controls. They
 * move a cursor, start a line for some readers, or change the order of the shown characters. Every log, terminal, and
 * admin response passes one of these functions, in every format.
 *
 * The escapes have the form of JSON (`\u001b`), so that serialized JSON stays valid and keeps its value. Tabs are kept.
 */
import { constantRegExp } from "./constant-regexp.ts";

const UNSAFE = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069";
const IN_LINE = constantRegExp(`[\\n${UNSAFE}]`);
const EACH_IN_LINE = constantRegExp(`[\\n${UNSAFE}]`, "g");
const IN_LINES = constantRegExp(`[${UNSAFE}]`);
const EACH_IN_LINES = constantRegExp(`[${UNSAFE}]`, "g");
/** The only control sequences that the gateway writes to logs and standard streams: colors, bold, and dim. */
const COLOR = "\\u001b\\[(?:0|1|2|3[1236]|90)m";
const KEPT_OR_UNSAFE = constantRegExp(`${COLOR}|\\r\\n|[${UNSAFE}]`, "g");

/** Escapes text that must stay on one line. */
export function escapeControls(text: string): string {
  return IN_LINE.test(text) ? text.replace(EACH_IN_LINE, escaped) : text;
}

/** Escapes text of several lines, such as indented JSON. Keeps line feeds. */
export function escapeLines(text: string): string {
  return IN_LINES.test(text) ? text.replace(EACH_IN_LINES, escaped) : text;
}

/**
 * The last step before a standard stream or a log file: like `escapeLines`, but keeps the gateway's own colors and the
 * line breaks of CSV (CR LF). Callers escape the parts that come from elsewhere before they add colors.
 */
export function escapeOutput(text: string): string {
  return IN_LINES.test(text)
    ? text.replace(KEPT_OR_UNSAFE, (found) => (found.length === 1 ? escaped(found) : found))
    : text;
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
