/**
 * Traces the next matching request with `/debug/trace`. Only one trace is open at a time.
 */
import { signal } from "@preact/signals";
import type { TraceEvent } from "../../../src/record/trace/record.ts";
import { streamLines } from "./api.ts";

export type { TraceEvent };

export interface Capture {
  /** `starting` until the gateway confirms that it traces the next request. */
  readonly state: "starting" | "waiting" | "running" | "done" | "failed";
  readonly expression: string;
  readonly events: readonly TraceEvent[];
  readonly error?: string;
}

export const capture = signal<Capture | undefined>(undefined);

let running: AbortController | undefined;

export function stopCapture(): void {
  running?.abort();
  running = undefined;
  capture.value = undefined;
}

export async function captureNext(expression: string): Promise<void> {
  running?.abort();
  const mine = new AbortController();
  running = mine;
  capture.value = { state: "starting", expression, events: [] };
  const query = expression === "" ? "" : `?expression=${encodeURIComponent(expression)}`;
  try {
    await streamLines(
      `debug/trace${query}`,
      (line) => {
        if (running !== mine) return;
        // The gateway confirms with a comment.
        if (line.startsWith(":") && capture.value?.state === "starting")
          capture.value = { state: "waiting", expression, events: [] };
        if (!line.startsWith("data:")) return;
        const event = JSON.parse(line.slice(5)) as TraceEvent;
        const events = [...(capture.value?.events ?? []), event];
        capture.value = { state: "running", expression, events };
      },
      { signal: mine.signal },
    );
    if (running === mine && capture.value) capture.value = { ...capture.value, state: "done" };
  } catch (error) {
    if (running === mine && (error as Error).name !== "AbortError")
      capture.value = { state: "failed", expression, events: [], error: (error as Error).message };
  }
}
