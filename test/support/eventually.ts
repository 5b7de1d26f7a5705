/**
 * Waits for what no event announces: the state of another process, or of the other end of a connection. It looks again
 * and again and ends as soon as it holds, so a quick machine does not wait and a busy one has time. No test sleeps.
 */

/** Much longer than anything takes on a busy machine; whoever waits longer waits in vain. */
const PATIENCE_MS = 60_000;
const LOOK_EVERY_MS = 5;

/** Resolves once the condition holds; fails with the sentence otherwise. */
export async function eventually(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const untilMs = performance.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (performance.now() > untilMs) throw new Error(`still not after ${PATIENCE_MS / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}
