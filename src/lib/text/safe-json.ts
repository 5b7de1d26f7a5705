/**
 * JSON that people look at in a terminal. `JSON.stringify` escapes the control characters below space only; the others
 * (DEL, the C1 range, line and paragraph separators) could move a cursor or begin a line, and what is shown here comes
 * from requests and child processes.
 */
const UNSAFE = /[\u007f-\u009f\u2028\u2029]/g;

export function safeJson(value: unknown, indent?: number): string {
  const json = JSON.stringify(value, null, indent);
  return json.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
