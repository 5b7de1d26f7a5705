/**
 * Keeps traces of selected requests, such as failed ones, within a memory limit. The oldest are dropped first.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { TraceEvent } from "./events.ts";
import type { TraceWatcher } from "./trace.ts";

const TRACE = peerInput("gateway/kept-trace");

/** Beyond this number of events, expressions are omitted. */
const MAX_EVENTS = 500;

export interface KeptTraces {
  /** Records the events of one request. They are stored only if `keep` is called. */
  record(): TraceRecording;
  find(id: string): readonly TraceEvent[] | undefined;
  report(): { readonly traces: number; readonly bytes: number; readonly maxBytes: number };
}

export interface TraceRecording extends TraceWatcher {
  keep(id: string): void;
}

export function createKeptTraces(maxBytes: number): KeptTraces {
  /** Traces are stored as JSON, because its length counts against `maxBytes` and later changes must not affect it. */
  const kept = new Map<string, Buffer>();
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
          const json = Buffer.from(JSON.stringify(events));
          events = [];
          drop(id);
          if (json.length > maxBytes) return;
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
      return json === undefined ? undefined : (readJson(TRACE, json) as TraceEvent[]);
    },
    report: () => ({ traces: kept.size, bytes, maxBytes }),
  };
}
