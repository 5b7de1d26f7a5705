/**
 * A server-sent event that is too large to hold: it is passed by, and only its end is kept, where OpenAI's last event
 * says its usage behind everything that it repeats. The bytes `"usage":{` cannot stand inside a JSON string (its quotes
 * would be escaped), so what they begin is an object of that name; one without counts is not taken.
 */

import { isMembers, type Members, parseValue } from "../../json/json.ts";
import { endOfEvent } from "../encoding/event-end.ts";
import { endOfObject } from "./quick-usage.ts";
import { readUsage } from "./usage.ts";

export interface LargeEvent {
  /** The offset behind the blank line that ends the event, or -1 if it goes on. */
  push(chunk: Buffer): number;
  /** An event with the usage alone, as JSON; undefined if the end held none. */
  usage(): string | undefined;
}

const TAIL_BYTES = 16 * 1024;
const USAGE = Buffer.from('"usage":');
const SPACE = 32;

export function createLargeEvent(): LargeEvent {
  let tail = Buffer.alloc(0);
  return {
    push(chunk) {
      const before = tail.length;
      const bytes = Buffer.concat([tail, chunk]);
      // The blank line may have begun in the chunk before.
      const end = endOfEvent(bytes, Math.max(0, before - 3));
      tail = Buffer.from(
        bytes.subarray(Math.max(0, (end < 0 ? bytes.length : end) - TAIL_BYTES), end < 0 ? undefined : end),
      );
      return end < 0 ? -1 : Math.max(0, end - before);
    },
    usage() {
      const event = usageIn(tail);
      return event && JSON.stringify(event);
    },
  };
}

/** The same of an event that was held, but is too complex to be parsed. */
export function usageAtEnd(data: string): Members | undefined {
  return usageIn(Buffer.from(data.slice(-TAIL_BYTES)));
}

function usageIn(tail: Buffer): Members | undefined {
  const at = tail.lastIndexOf(USAGE);
  if (at < 0) return undefined;
  let start = at + USAGE.length;
  while (tail[start] === SPACE) start += 1;
  const end = endOfObject(tail, start);
  if (end < 0) return undefined;
  const usage = parseValue(tail.subarray(start, end));
  return isMembers(usage) && readUsage(usage) !== undefined ? { usage } : undefined;
}
