/**
 * A status with a shape and a color, so that it is readable without color vision.
 */
import type { ComponentChildren } from "preact";

/** `busy` means that a task is running or pending. */
export type Level = "ok" | "warn" | "bad" | "idle" | "busy";

export function Status({ level, children }: { level: Level; children: ComponentChildren }) {
  return <span class={`status ${level}`}>{children}</span>;
}

/** An MCP call can fail inside a response with status 200, so a recorded failure takes precedence. */
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

/** Errors are bad from 5%. Fewer errors and rejections are a warning. */
export function levelOfRate({ errorShare, rejectedShare }: { errorShare: number; rejectedShare: number }): Level {
  if (errorShare >= 0.05) return "bad";
  return errorShare > 0 || rejectedShare > 0 ? "warn" : "ok";
}
