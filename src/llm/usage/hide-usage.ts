/**
 * Takes the usage chunk out of a chat stream whose client did not ask for it: the last chunk, the one without
 * choices. Every other byte goes on as it came; only the unfinished tail of an event is held until it is whole.
 */

import { isMembers, parseMembers } from "../../json/json.ts";
import { endOfEvent } from "../encoding/stream-events.ts";
import { endsEvent, mayHoldUsage } from "./event-content.ts";

export interface UsageHider {
  /** What may go to the client now; undefined if nothing. `usageAt`: what `usageEventAt` says of the chunk. */
  pass(chunk: Buffer, usageAt: number): Buffer | undefined;
  /** What is left at the end. */
  flush(): Buffer | undefined;
}

/** A usage chunk is never that large: a longer unfinished event is passed on as it comes. */
const MAX_HELD_BYTES = 16 * 1024;

export function createUsageHider(): UsageHider {
  let held: Buffer | undefined;
  let insideLong = false;
  /** The last bytes of a long event: the blank line that ends it may come in two pieces. */
  let tail: Buffer = Buffer.alloc(0);
  return {
    pass(chunk, usageAt) {
      const beginsEvent = held === undefined && !insideLong;
      // The usual chunk: whole events, none of them with usage.
      if (beginsEvent && usageAt < 0 && endsEvent(chunk)) return chunk;
      const bytes = held === undefined ? chunk : Buffer.concat([held, chunk]);
      held = undefined;
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
      // The events before it have none.
      if (beginsEvent && usageAt > 0) from = usageAt;
      for (let end = endOfEvent(bytes, from); end >= 0; end = endOfEvent(bytes, from)) {
        if (isUsageChunk(bytes.toString("utf8", from, end))) {
          const start = behindBlankLines(bytes, from);
          if (start > kept) out.push(bytes.subarray(kept, start));
          kept = end;
        }
        from = end;
      }
      if (from > kept) out.push(bytes.subarray(kept, from));
      if (from < bytes.length) {
        if (bytes.length - from <= MAX_HELD_BYTES) held = bytes.subarray(from);
        else {
          insideLong = true;
          tail = bytes.subarray(-2);
          out.push(bytes.subarray(from));
        }
      }
      return out.length === 0 ? undefined : out.length === 1 ? out[0] : Buffer.concat(out);
    },
    flush() {
      const rest = held;
      held = undefined;
      // Some servers leave out the blank line behind their last event.
      if (rest === undefined || !isUsageChunk(rest.toString("utf8"))) return rest;
      const start = behindBlankLines(rest, 0);
      return start > 0 ? rest.subarray(0, start) : undefined;
    },
  };
}

/** Blank lines before an event are not part of it: they go on, as they do when they come in a piece of their own. */
function behindBlankLines(bytes: Buffer, from: number): number {
  let at = from;
  while (bytes[at] === 10 || bytes[at] === 13) at += 1;
  return at;
}

/** What nearly all events are: one line of data and a blank one. */
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

function isUsageChunk(event: string): boolean {
  if (!mayHoldUsage(event)) return false;
  const chunk = parseMembers(onlyLine(event) ?? dataLines(event));
  return chunk !== undefined && Array.isArray(chunk.choices) && chunk.choices.length === 0 && isMembers(chunk.usage);
}
