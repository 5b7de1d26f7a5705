/**
 * Search in a trace: an event is found by what its line says and by what its detail says, in whatever case. Pure.
 */
import type { TraceEvent } from "../../trace/events.ts";
import { labelOf, summaryOf } from "./trace-text.ts";

/** The indices of the events that have the text. */
export function matchesOf(events: readonly TraceEvent[], text: string): number[] {
  const wanted = text.toLowerCase();
  if (wanted === "") return [];
  return events.flatMap((event, index) => (textOf(event).includes(wanted) ? [index] : []));
}

/** The next one before or after `from`; behind the last comes the first. Undefined if there is none. */
export function nextMatch(matches: readonly number[], from: number, by: 1 | -1): number | undefined {
  if (by === 1) return matches.find((index) => index > from) ?? matches[0];
  return matches.findLast((index) => index < from) ?? matches.at(-1);
}

/** For the line below the panes. */
export function searchText(text: string, matches: readonly number[], selected: number): string {
  const at = matches.indexOf(selected);
  if (matches.length === 0) return `no event with "${text}"`;
  const events = matches.length === 1 ? "1 event" : `${matches.length} events`;
  return at < 0 ? `"${text}": ${events}` : `"${text}": ${at + 1} of ${events}`;
}

function textOf(event: TraceEvent): string {
  return `${labelOf(event)} ${summaryOf(event)} ${JSON.stringify(event.message)}`.toLowerCase();
}
