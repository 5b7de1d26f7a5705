/**
 * Shows a status with a shape and a color, so that it is readable without color vision.
 */

import type { ComponentChildren } from "preact";
import { type RequestRecord, type RequestResult, resultOf } from "../../../src/record/trace/record.ts";

/** `busy` means that a task is running or pending. */
export type Level = "ok" | "warn" | "bad" | "idle" | "busy";

export function Status({ level, children }: { level: Level; children: ComponentChildren }) {
  return <span class={`status ${level}`}>{children}</span>;
}

const RESULT_LEVELS: Readonly<Record<RequestResult, Level>> = {
  ok: "ok",
  rejected: "warn",
  failed: "bad",
  aborted: "ok",
};

export function levelOfRequest(request: RequestRecord): Level {
  return RESULT_LEVELS[resultOf(request)];
}

/** Errors are bad from 5%. Fewer errors and rejections are a warning. */
export function levelOfRate({ errorShare, rejectedShare }: { errorShare: number; rejectedShare: number }): Level {
  if (errorShare >= 0.05) return "bad";
  return errorShare > 0 || rejectedShare > 0 ? "warn" : "ok";
}
