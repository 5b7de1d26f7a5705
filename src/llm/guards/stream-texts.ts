/**
 * The texts of a whole stream: the deltas of each choice or block put together, and texts that stand alone. What is put in
 * their place goes into the first delta; the others become empty.
 */
import type { SseEvent } from "../../lib/http/sse.ts";
import { parseMembers } from "../wire/json.ts";
import { mapRepeats, slotOf } from "./stream-guard.ts";

export interface StreamTexts {
  readonly texts: readonly string[];
  /** The events with other texts, in the same order. */
  replaced(texts: readonly string[]): SseEvent[];
}

export function streamTexts(events: readonly SseEvent[]): StreamTexts {
  const channels = new Map<string, number>();
  const texts: string[] = [];
  for (const { data } of events) {
    const body = parseMembers(data);
    const slot = body && slotOf(body);
    if (slot) {
      const known = channels.get(slot.key);
      if (known === undefined) channels.set(slot.key, texts.push(slot.text) - 1);
      else texts[known] += slot.text;
    } else if (body)
      mapRepeats(body, (text) => {
        texts.push(text);
        return text;
      });
  }
  return {
    texts,
    replaced(others) {
      const said = new Set<string>();
      let next = 0;
      // The order in which texts were found: a channel counts where it began.
      return events.map((event) => {
        const body = parseMembers(event.data);
        const slot = body && slotOf(body);
        if (slot) {
          const index = channels.get(slot.key) ?? 0;
          const isFirst = !said.has(slot.key);
          said.add(slot.key);
          if (isFirst) next = Math.max(next, index + 1);
          return { ...event, data: JSON.stringify(slot.put(isFirst ? (others[index] ?? "") : "")) };
        }
        if (!body) return event;
        return { ...event, data: JSON.stringify(mapRepeats(body, () => others[next++] ?? "")) };
      });
    },
  };
}
