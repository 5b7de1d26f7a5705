/**
 * Removes the events of a chat stream that only report usage, because the gateway asked for it and the client did not.
 * Usage in an event with other data passes, because the server would send it without the request too.
 */

import { JoinedBytes } from "../../base/joined-bytes.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { isMembers } from "../../json/json.ts";
import { readMembers } from "../../json/read-json.ts";
import { endOfEvent, endsEvent, mayHoldUsage } from "./stream-events.ts";

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
  let isFirstEvent = true;
  /** The blank line that ends a long event may be split across two chunks. */
  let tail: Buffer = Buffer.alloc(0);
  return {
    pass(chunk, usageAt) {
      const beginsEvent = held.length === 0 && !insideLong;
      // Most chunks hold complete events without usage.
      if (beginsEvent && usageAt < 0 && endsEvent(chunk)) {
        isFirstEvent = false;
        return chunk;
      }
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
      if (from > 0) isFirstEvent = false;
      // The end of an event has at most three bytes, and one of them is new.
      const firstEnd = endOfEvent(bytes, Math.max(from, searched - 2));
      for (let end = firstEnd; end >= 0; end = endOfEvent(bytes, from)) {
        if (onlyReportsUsage(bytes.toString("utf8", from, end), isFirstEvent)) {
          const start = behindBlankLines(bytes, from);
          if (start > kept) out.push(bytes.subarray(kept, start));
          kept = end;
        }
        isFirstEvent = false;
        from = end;
      }
      if (from > kept) out.push(bytes.subarray(kept, from));
      searched = bytes.length - from;
      if (searched > MAX_HELD_BYTES) {
        isFirstEvent = false;
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
      if (!onlyReportsUsage(rest.toString("utf8"), isFirstEvent)) return rest;
      const left = rest.subarray(0, behindBlankLines(rest, 0));
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

/** Some servers, such as OpenRouter, report usage with an empty choice. The first event may have one for its role. */
function onlyReportsUsage(event: string, isFirst: boolean): boolean {
  if (!mayHoldUsage(event)) return false;
  const chunk = readMembers(EVENT, onlyLine(event) ?? dataLines(event));
  if (chunk === undefined || !Array.isArray(chunk.choices) || !isMembers(chunk.usage)) return false;
  return chunk.choices.length === 0 || (!isFirst && chunk.choices.every(isEmptyChoice));
}

function isEmptyChoice(choice: unknown): boolean {
  if (!isMembers(choice) || (choice.finish_reason ?? null) !== null) return false;
  const delta = isMembers(choice.delta) ? choice.delta : {};
  return Object.entries(delta).every(([name, value]) => name === "role" || value === null || value === "");
}
