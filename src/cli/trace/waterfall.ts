/**
 * The phases of one request as bars over time: gateway, route, backend, the backend's answer, the response. Drawn
 * with characters, so that it works in any terminal.
 */
import type { TraceEvent } from "../../observe/trace/events.ts";
import { duration } from "./trace-text.ts";

export interface Bar {
  readonly name: string;
  readonly startMicros: number;
  readonly endMicros: number;
  readonly failed: boolean;
}

/** The lanes of a trace, in the order in which they begin. Each retry has a lane of its own. */
export function barsOf(events: readonly TraceEvent[]): Bar[] {
  const bars: Bar[] = [];
  let phaseStart = 0;
  let phase: string | undefined;
  const close = (at: number, failed = false): void => {
    if (phase !== undefined) bars.push({ name: phase, startMicros: phaseStart, endMicros: at, failed });
    phase = undefined;
  };
  const open = (name: string, at: number): void => {
    phase = name;
    phaseStart = at;
  };
  for (const { message, eventStart, eventEnd, severity } of events) {
    if (message.type === "policySelection") {
      close(eventEnd);
      open(message.phase, eventEnd);
    } else if (message.type === "policy") {
      const startMicros = eventStart ?? eventEnd;
      const failed = message.result === "refused";
      bars.push({ name: `  ${message.kind}`, startMicros, endMicros: eventEnd, failed });
    } else if (message.type === "backendCallStart") {
      close(eventEnd);
    } else if (message.type === "backendCallResult") {
      close(eventStart ?? eventEnd);
      bars.push({
        name: "call",
        startMicros: eventStart ?? eventEnd,
        endMicros: eventEnd,
        failed: severity === "error",
      });
      open("response", eventEnd);
    } else if (message.type === "requestFinished") {
      close(eventEnd, severity === "error");
    }
  }
  return bars.sort((a, b) => a.startMicros - b.startMicros || b.endMicros - a.endMicros);
}

export function drawBars(bars: readonly Bar[], width: number): { text: string; failed: boolean }[] {
  const total = Math.max(1, ...bars.map(({ endMicros }) => endMicros));
  const nameWidth = Math.min(Math.floor(width / 2.5), Math.max(0, ...bars.map(({ name }) => name.length)));
  const timeWidth = 8;
  const room = Math.max(4, width - nameWidth - timeWidth - 2);
  return bars.map(({ name, startMicros, endMicros, failed }) => {
    const from = Math.min(room - 1, Math.floor((startMicros / total) * room));
    const length = Math.max(1, Math.min(room - from, Math.round(((endMicros - startMicros) / total) * room)));
    const bar = `${" ".repeat(from)}${(failed ? "▒" : "█").repeat(length)}`.padEnd(room);
    const shown = name.length > nameWidth ? `${name.slice(0, nameWidth - 1)}…` : name.padEnd(nameWidth);
    return { text: `${shown} ${bar} ${duration(endMicros - startMicros).padStart(timeWidth)}`, failed };
  });
}
