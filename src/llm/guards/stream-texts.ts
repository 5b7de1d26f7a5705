/**
 * The texts of a whole stream, for guards that judge it at once: the pieces of each channel joined, and strings that are
 * whole. They are the texts that `stream-guard.ts` guards.
 */

import { SLICED_BYTES, type Steps } from "../../base/turns.ts";
import type { SseEvent } from "../../http/sse.ts";
import { parseEventInSteps, writeEventInSteps } from "../encoding/event-body.ts";
import { spreadText } from "./guarded-text.ts";
import { readPlaces, withPlaces } from "./stream-places.ts";

export interface StreamTexts {
  readonly texts: readonly string[];
  /** The events with other texts, as many and in the same order. */
  replaced(texts: readonly string[]): Steps<SseEvent[]>;
}

const END_OF_STREAM = "[DONE]";

/** Throws EventTooComplex. */
export function* streamTexts(events: readonly SseEvent[]): Steps<StreamTexts> {
  const runs: string[][] = [];
  const known = new Map<string, number>();
  /** The run of each string, in the order of the stream. */
  const order: number[] = [];
  const add = (key: string, text: string): void => {
    let index = known.get(key);
    if (index === undefined) {
      index = runs.length;
      known.set(key, index);
      runs.push([]);
    }
    runs[index]?.push(text);
    order.push(index);
  };
  for (const [i, { data }] of events.entries()) {
    const parsed = yield* parseEventInSteps(data);
    if (parsed) for (const { text, channel, run } of readPlaces(parsed).places) add(channel ?? `${i} ${run}`, text);
    else if (data !== END_OF_STREAM) add("", data);
    yield;
  }
  return {
    texts: runs.map((parts) => parts.join("")),
    *replaced(texts) {
      const spread = runs.map((parts, i) => spreadText(parts, texts[i] ?? ""));
      const taken = runs.map(() => 0);
      let at = 0;
      const next = (): string => {
        const run = order[at++] ?? 0;
        const part = taken[run] ?? 0;
        taken[run] = part + 1;
        return spread[run]?.[part] ?? "";
      };
      const out: SseEvent[] = [];
      for (const event of events) {
        const parsed = yield* parseEventInSteps(event.data);
        if (parsed) {
          const { body, places } = readPlaces(parsed);
          const shown = withPlaces(body, places.map(next));
          const data = yield* writeEventInSteps(shown, event.data.length > SLICED_BYTES);
          out.push({ ...event, data });
        } else out.push(event.data === END_OF_STREAM ? event : { ...event, data: next() });
        yield;
      }
      return out;
    },
  };
}
