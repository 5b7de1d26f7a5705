/**
 * Tracks from the results of requests whether the gateway is reachable, and notifies subscribers when it is back.
 */
import { signal } from "@preact/signals";

/** Contains the time of the first failed request in milliseconds, or undefined while the gateway responds. */
export const unavailableSince = signal<number | undefined>(undefined);

/** True if the gateway responds but the user is no longer signed in. */
export const isSignedOut = signal(false);

const listeners = new Set<() => void>();

export function noteFailure(): void {
  unavailableSince.value ??= Date.now();
}

export function noteResponse(): void {
  if (unavailableSince.peek() === undefined) return;
  unavailableSince.value = undefined;
  for (const listener of listeners) listener();
}

/** The listener is called each time the gateway is back. Returns an unsubscribe function. */
export function onReturn(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
