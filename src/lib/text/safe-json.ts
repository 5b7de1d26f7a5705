/**
 * JSON that people look at in a terminal. `JSON.stringify` escapes the control characters below space only; the others
 * (DEL, the C1 range, line and paragraph separators) could move a cursor or begin a line, and what is shown here comes
 * from requests and child processes.
 */
const UNSAFE = /[\u007f-\u009f\u2028\u2029]/g;

export function safeJson(value: unknown, indent?: number): string {
  return escaped(JSON.stringify(value, null, indent));
}

/** The same text as `safeJson(value, 2)`, one member in a turn: a large object does not hold the loop for all of it. */
export async function safeJsonInTurns(value: Readonly<Record<string, unknown>>): Promise<string> {
  const members: string[] = [];
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    await new Promise((resolve) => setImmediate(resolve));
    members.push(`  ${safeJson(name)}: ${safeJson(member, 2).replaceAll("\n", "\n  ")}`);
  }
  return members.length === 0 ? "{}" : `{\n${members.join(",\n")}\n}`;
}

function escaped(json: string): string {
  return json.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
