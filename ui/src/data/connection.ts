/**
 * Tracks whether the gateway is reachable, from the result of every request. Subscribers are notified when it is back,
 * so that pages update without a reload.
 */
import { signal } from "@preact/signals";

/** The time at which the gateway became unavailable; undefined while it responds. */
export const unavailableSince = signal<number | undefined>(undefined);

/** The gateway responds, but the user is no longer signed in. */
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

/** Registers a listener that is called each time the gateway is back; returns an unsubscribe function. */
export function onReturn(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
