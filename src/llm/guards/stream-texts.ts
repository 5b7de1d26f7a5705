/**
 * The texts of a whole stream: the deltas of each choice or block put together, and texts that stand alone. What is put in
 * their place goes into the first delta; the others become empty.
 */
import type { SseEvent } from "../../lib/http/sse.ts";
import { SLICED_BYTES, type Steps } from "../../lib/process/turns.ts";
import { parseEventInSteps, writeEventInSteps } from "../wire/event-body.ts";
import { eachRepeat, mapRepeats, slotOf } from "./stream-guard.ts";

export interface StreamTexts {
  readonly texts: readonly string[];
  /** The events with other texts, in the same order. */
  replaced(texts: readonly string[]): Steps<SseEvent[]>;
}

/** Throws EventTooComplex. */
export function* streamTexts(events: readonly SseEvent[]): Steps<StreamTexts> {
  const channels = new Map<string, number>();
  const texts: string[] = [];
  for (const { data } of events) {
    const body = yield* parseEventInSteps(data);
    const slot = body && slotOf(body);
    if (slot) {
      const known = channels.get(slot.key);
      if (known === undefined) channels.set(slot.key, texts.push(slot.text) - 1);
      else texts[known] += slot.text;
    } else if (body) eachRepeat(body, (text) => void texts.push(text));
    yield;
  }
  return {
    texts,
    *replaced(others) {
      const said = new Set<string>();
      const out: SseEvent[] = [];
      // The order in which texts were found: a channel counts where it began.
      let next = 0;
      for (const event of events) {
        const isLarge = event.data.length > SLICED_BYTES;
        const body = yield* parseEventInSteps(event.data);
        const slot = body && slotOf(body);
        if (slot) {
          const index = channels.get(slot.key) ?? 0;
          const isFirst = !said.has(slot.key);
          said.add(slot.key);
          if (isFirst) next = Math.max(next, index + 1);
          const text = isFirst ? (others[index] ?? "") : "";
          out.push({ ...event, data: yield* writeEventInSteps(slot.put(text), isLarge) });
        } else if (body) {
          const changed = mapRepeats(body, () => others[next++] ?? "");
          out.push({ ...event, data: yield* writeEventInSteps(changed, isLarge) });
        } else out.push(event);
        yield;
      }
      return out;
    },
  };
}
