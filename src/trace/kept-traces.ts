/**
 * Full traces of requests that failed, kept within a memory budget so that one can look after something went wrong.
 * Switched on by the operator: every request is then traced, and thrown away again when it went well.
 */
import type { TraceEvent } from "./events.ts";
import type { TraceWatcher } from "./trace.ts";

/** One request may emit one event per policy and expression; more than this is cut and says so. */
const MAX_EVENTS = 500;

export interface KeptTraces {
  /** Takes the events of one request; ask `keep` or nothing when it ended. */
  record(): TraceRecording;
  /** The newest trace of that request. */
  find(id: string): readonly TraceEvent[] | undefined;
  report(): { readonly traces: number; readonly bytes: number; readonly maxBytes: number };
}

export interface TraceRecording extends TraceWatcher {
  keep(id: string): void;
}

export function createKeptTraces(maxBytes: number): KeptTraces {
  /** As JSON: its length is the size that counts, and nothing in it can change any more. */
  const kept = new Map<string, string>();
  let bytes = 0;

  function drop(id: string): void {
    bytes -= kept.get(id)?.length ?? 0;
    kept.delete(id);
  }

  return {
    record() {
      let events: TraceEvent[] = [];
      return {
        event(event) {
          if (events.length < MAX_EVENTS) events.push(event);
        },
        finished: () => undefined,
        keep(id) {
          const json = JSON.stringify(events);
          events = [];
          if (json.length > maxBytes) return;
          drop(id);
          kept.set(id, json);
          bytes += json.length;
          for (const oldest of kept.keys()) {
            if (bytes <= maxBytes) break;
            drop(oldest);
          }
        },
      };
    },
    find(id) {
      const json = kept.get(id);
      return json === undefined ? undefined : (JSON.parse(json) as TraceEvent[]);
    },
    report: () => ({ traces: kept.size, bytes, maxBytes }),
  };
}
