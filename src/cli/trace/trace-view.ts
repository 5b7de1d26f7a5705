/**
 * What shows a trace, whichever way: as lines, as a list, or on a screen of its own.
 */
import type { TraceEvent } from "../../observe/trace/events.ts";

/** Where events go while they come. */
export interface TraceView {
  event(event: TraceEvent): void;
  status(text: string): void;
  /** Resolves when the user has seen enough; a list has nobody to wait for. */
  readonly closed: Promise<void>;
}
