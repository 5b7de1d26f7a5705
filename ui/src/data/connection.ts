/**
 * Whether the gateway answers at all. Every request tells; whoever shows data is told when the gateway is back, so that
 * pages are right again without being loaded anew.
 */
import { signal } from "@preact/signals";

/** Since when nothing answers; undefined while the gateway does. */
export const awaySince = signal<number | undefined>(undefined);

/** The gateway answers, but the user is not signed in any more. */
export const isSignedOut = signal(false);

const listeners = new Set<() => void>();

export function noteSilence(): void {
  awaySince.value ??= Date.now();
}

export function noteAnswer(): void {
  if (awaySince.peek() === undefined) return;
  awaySince.value = undefined;
  for (const listener of listeners) listener();
}

/** Called each time the gateway is back; the returned function withdraws. */
export function onReturn(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
