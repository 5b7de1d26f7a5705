/**
 * Headers that tell a target who the caller of one request is. They go with the request's own headers, by their
 * identity as an object, so that they can never be of another request, and nothing that shows headers shows them.
 */
import type { HeaderList } from "../../http/headers.ts";

/** Name, value, … by the target's name. */
export type CallerHeaders = ReadonlyMap<string, readonly string[]>;

const ofRequests = new WeakMap<HeaderList, CallerHeaders>();

export function giveCallerHeaders(headers: HeaderList, given: CallerHeaders): void {
  ofRequests.set(headers, given);
}

export function callerHeaders(headers: HeaderList, target: string): readonly string[] {
  return ofRequests.get(headers)?.get(target) ?? [];
}
