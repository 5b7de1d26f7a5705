/**
 * Removes the usage from a chat stream.
 */

import { JoinedBytes } from "../../base/joined-bytes.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { isMembers } from "../../json/json.ts";
import { removeMembers, splice } from "../../json/json-text.ts";
import { readMembers } from "../../json/read-json.ts";
import { endOfEvent } from "../encoding/stream-events.ts";
import { endsEvent, mayHoldUsage } from "./event-content.ts";

const EVENT = peerInput("llm-provider/stream-event");

export interface UsageHider {
  /**
   * `usageAt` is the result of `usageEventAt` for the chunk. Returns undefined if no bytes are ready for the client.
   */
  pass(chunk: Buffer, usageAt: number): Buffer | undefined;
  flush(): Buffer | undefined;
}

/** A usage event is assumed to be smaller than this, so longer incomplete events are forwarded without buffering. */
const MAX_HELD_BYTES = 16 * 1024;

export function createUsageHider(): UsageHider {
  const held = new JoinedBytes();
  /** The number of held bytes that contain no end of an event. */
  let searched = 0;
  let insideLong = false;
  /** The blank line that ends a long event may be split across two chunks. */
  let tail: Buffer = Buffer.alloc(0);
  return {
    pass(chunk, usageAt) {
      const beginsEvent = held.length === 0 && !insideLong;
      // Most chunks hold complete events without usage.
      if (beginsEvent && usageAt < 0 && endsEvent(chunk)) return chunk;
      const bytes = held.length === 0 ? chunk : held.add(chunk);
      let from = 0;
      if (insideLong) {
        const end = endOfEvent(Buffer.concat([tail, bytes]), 0);
        if (end < 0) {
          tail = Buffer.concat([tail, bytes]).subarray(-2);
          return bytes;
        }
        insideLong = false;
        from = end - tail.length;
      }
      const out: Buffer[] = from > 0 ? [bytes.subarray(0, from)] : [];
      let kept = from;
      // No event before `usageAt` has usage.
      if (beginsEvent && usageAt > 0) from = usageAt;
      // The end of an event has at most three bytes, and one of them is new.
      const firstEnd = endOfEvent(bytes, Math.max(from, searched - 2));
      for (let end = firstEnd; end >= 0; end = endOfEvent(bytes, from)) {
        const event = bytes.toString("utf8", from, end);
        const without = withoutUsage(event);
        if (without !== event) {
          const start = behindBlankLines(bytes, from);
          if (start > kept) out.push(bytes.subarray(kept, start));
          if (without !== "") out.push(Buffer.from(without));
          kept = end;
        }
        from = end;
      }
      if (from > kept) out.push(bytes.subarray(kept, from));
      searched = bytes.length - from;
      if (searched > MAX_HELD_BYTES) {
        insideLong = true;
        tail = bytes.subarray(-2);
        out.push(bytes.subarray(from));
        searched = 0;
        held.clear();
      } else if (from > 0 || held.length === 0) {
        held.clear();
        held.add(bytes.subarray(from));
      }
      return out.length === 0 ? undefined : out.length === 1 ? out[0] : Buffer.concat(out);
    },
    flush() {
      if (held.length === 0) return undefined;
      const rest = held.all;
      held.clear();
      searched = 0;
      // Some servers omit the blank line after the last event.
      const event = rest.toString("utf8");
      const without = withoutUsage(event);
      if (without === event) return rest;
      const left = Buffer.concat([rest.subarray(0, behindBlankLines(rest, 0)), Buffer.from(without)]);
      return left.length > 0 ? left : undefined;
    },
  };
}

/** Blank lines before an event are not part of the event, so they are forwarded. */
function behindBlankLines(bytes: Buffer, from: number): number {
  let at = from;
  while (bytes[at] === 10 || bytes[at] === 13) at += 1;
  return at;
}

function onlyLine(event: string): string | undefined {
  const end = event.length - 2;
  return event.startsWith("data:") && event.indexOf("\n") === end && event.endsWith("\n\n") && !event.includes("\r")
    ? event.slice(5, end)
    : undefined;
}

function dataLines(event: string): string {
  return event
    .split(/\r\n|\n|\r/)
    .flatMap((line) => (line.startsWith("data:") ? [line.slice(5)] : []))
    .join("\n");
}

/** Returns an empty string if the event has usage and an empty list of choices. */
function withoutUsage(event: string): string {
  if (!mayHoldUsage(event)) return event;
  const data = onlyLine(event) ?? dataLines(event);
  const chunk = readMembers(EVENT, data);
  if (chunk === undefined || !Array.isArray(chunk.choices) || !isMembers(chunk.usage)) return event;
  if (chunk.choices.length === 0) return "";
  return `data:${splice(
    data,
    removeMembers(data, 0, (key) => key === "usage"),
  ).replaceAll("\n", "\ndata:")}\n\n`;
}
