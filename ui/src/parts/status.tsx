/**
 * A status: a word with a shape and a colour, so that it can be read without seeing colours.
 */
import type { ComponentChildren } from "preact";

/** `busy`: something runs or is waited for, which is neither good nor bad. */
export type Level = "ok" | "warn" | "bad" | "idle" | "busy";

export function Status({ level, children }: { level: Level; children: ComponentChildren }) {
  return <span class={`status ${level}`}>{children}</span>;
}

/** An MCP failure travels with status 200: what the records say of it counts more than the status. */
export function levelOfRequest({
  status,
  failure,
}: {
  readonly status: number | null;
  readonly failure?: { readonly source: string };
}): Level {
  const level = levelOfStatus(status);
  if (failure === undefined || level !== "ok") return level;
  return failure.source === "client" ? "warn" : "bad";
}

function levelOfStatus(status: number | undefined | null): Level {
  if (status === undefined || status === null || status >= 500) return "bad";
  if (status >= 400) return "warn";
  return "ok";
}

/** Red from one error in twenty; amber for a single one, and for refusals, which are somebody's will. */
export function levelOfRate({ errorShare, refusedShare }: { errorShare: number; refusedShare: number }): Level {
  if (errorShare >= 0.05) return "bad";
  return errorShare > 0 || refusedShare > 0 ? "warn" : "ok";
}
