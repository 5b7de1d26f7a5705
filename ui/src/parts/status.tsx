/**
 * A status: a word with a shape and a color, so that it is readable without color vision.
 */
import type { ComponentChildren } from "preact";

/** `busy`: a task is running or pending, which is neither good nor bad. */
export type Level = "ok" | "warn" | "bad" | "idle" | "busy";

export function Status({ level, children }: { level: Level; children: ComponentChildren }) {
  return <span class={`status ${level}`}>{children}</span>;
}

/** An MCP failure has HTTP status 200, so the recorded failure takes precedence over the status. */
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

/** Red from 5% errors; amber for fewer errors and for rejections, which are intended. */
export function levelOfRate({ errorShare, rejectedShare }: { errorShare: number; rejectedShare: number }): Level {
  if (errorShare >= 0.05) return "bad";
  return errorShare > 0 || rejectedShare > 0 ? "warn" : "ok";
}
