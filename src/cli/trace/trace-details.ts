/**
 * Formats the detail pane of the terminal UI: the selected event, its snapshot, the changes since the previous
 * snapshot, or the waterfall of request phases.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { JsonObject, TraceEvent } from "../../record/trace/record.ts";
import { printable } from "../terminal/terminal.ts";
import { duration } from "./trace-text.ts";

const BODY = peerInput("gateway/trace-event");

export interface DetailLine {
  readonly text: string;
  readonly change?: "added" | "removed";
}

export type Format = "yaml" | "json";

export function eventLines(event: TraceEvent, format: Format): DetailLine[] {
  const { message } = event;
  if (message.type !== "bodySnapshot") return lines(shown(event, format));
  const { body, ...rest } = message;
  return [
    ...lines(shown({ ...event, message: rest }, format)),
    { text: "" },
    ...lines(decodeBody(Buffer.from(body, "base64"))),
  ];
}

/** Shows the latest snapshot at or before the event. */
export function snapshotLines(events: readonly TraceEvent[], index: number, format: Format): DetailLine[] {
  const found = snapshotAt(events, index);
  return found ? lines(shown(found.state, format)) : [{ text: "no snapshot yet" }];
}

export function diffLines(events: readonly TraceEvent[], index: number): DetailLine[] {
  const current = snapshotAt(events, index);
  if (!current) return [{ text: "no snapshot yet" }];
  const before = snapshotAt(events, current.index - 1, current.type);
  if (!before) return [{ text: `the first ${current.type === "requestSnapshot" ? "request" : "response"} snapshot` }];
  const old = flatten(before.state);
  const now = flatten(current.state);
  const changed = [...new Set([...old.keys(), ...now.keys()])].flatMap((path): DetailLine[] => {
    const was = old.get(path);
    const is = now.get(path);
    if (was === is) return [];
    return [
      ...(was === undefined ? [] : [{ text: `- ${path}: ${was}`, change: "removed" as const }]),
      ...(is === undefined ? [] : [{ text: `+ ${path}: ${is}`, change: "added" as const }]),
    ];
  });
  const title = `${before.stage} → ${current.stage}`;
  return [{ text: title }, ...(changed.length === 0 ? [{ text: "no changes" }] : changed)];
}

interface Snapshot {
  readonly index: number;
  readonly type: "requestSnapshot" | "responseSnapshot";
  readonly stage: string;
  readonly state: JsonObject;
}

function snapshotAt(events: readonly TraceEvent[], index: number, type?: Snapshot["type"]): Snapshot | undefined {
  for (let i = Math.min(index, events.length - 1); i >= 0; i--) {
    const { message } = events[i] as TraceEvent;
    if (message.type !== "requestSnapshot" && message.type !== "responseSnapshot") continue;
    if (type !== undefined && message.type !== type) continue;
    return { index: i, type: message.type, stage: message.stage, state: message.requestState };
  }
  return undefined;
}

/** Maps paths such as `request.headers.x-id` to JSON values. Skips fields whose name ends with `Duration`. */
function flatten(value: unknown, path = "", found = new Map<string, string>()): Map<string, string> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [key, item] of Object.entries(value)) {
      if (!key.endsWith("Duration")) flatten(item, path === "" ? key : `${path}.${key}`, found);
    }
  } else found.set(printable(path), oneLine(JSON.stringify(value) ?? ""));
  return found;
}

export function decodeBody(bytes: Buffer): string {
  const text = bytes.toString("utf8");
  if (text.includes("\ufffd") && bytes.indexOf("\ufffd") < 0) return `(${bytes.length} bytes that are not text)`;
  try {
    return JSON.stringify(readJson(BODY, text), null, 2);
  } catch {
    return text;
  }
}

function shown(value: unknown, format: Format): string {
  return format === "json" ? JSON.stringify(value, null, 2) : yamlish(value, "").replace(/^\n/, "");
}

/** Formats a value as simplified YAML. The output is for display only and may not be valid YAML. */
function yamlish(value: unknown, indent: string): string {
  if (Array.isArray(value) && value.length > 0)
    return value.map((item) => `\n${indent}- ${yamlish(item, `${indent}  `).trimStart()}`).join("");
  if (typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0)
    return Object.entries(value)
      .map(([key, item]) => {
        const text = yamlish(item, `${indent}  `);
        return `\n${indent}${oneLine(key)}:${text.startsWith("\n") ? text : ` ${text}`}`;
      })
      .join("");
  if (typeof value === "string" && /^[^\s"'#:{}[\],&*!|>%@`-][^\n#]*$/.test(value) && !value.includes(": "))
    return value;
  return oneLine(JSON.stringify(value) ?? "");
}

function oneLine(text: string): string {
  return printable(text.replaceAll("\n", "\\n"));
}

function lines(text: string): DetailLine[] {
  return printable(text)
    .split("\n")
    .map((line) => ({ text: line.replaceAll("\t", "  ") }));
}

export interface Bar {
  readonly name: string;
  readonly startMicros: number;
  readonly endMicros: number;
  readonly failed: boolean;
}

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
