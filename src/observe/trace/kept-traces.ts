/**
 * Full traces of requests that failed, kept within a memory budget so that one can look after something went wrong.
 * Switched on by the operator: every request is then traced, and thrown away again when it went well.
 */
import type { TraceEvent } from "./events.ts";
import type { TraceWatcher } from "./trace.ts";

/** A rule over a list of a thousand tools is evaluated a thousand times: beyond this, expressions are left out. */
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
      let leftOut = 0;
      return {
        event(event) {
          if (events.length < MAX_EVENTS || event.message.type !== "cel") events.push(event);
          else leftOut += 1;
        },
        finished: () => undefined,
        keep(id) {
          const last = events.at(-1);
          if (leftOut > 0 && last)
            events.push({ ...last, message: { type: "policyEvent", kind: "leftOut", details: { cel: leftOut } } });
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
