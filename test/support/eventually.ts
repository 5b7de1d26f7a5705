/**
 * Polls for a condition without an event, such as the state of another process. Polling ends when the condition
 * holds, so fast machines do not wait.
 */

/** Much longer than anything takes on a busy machine; whoever waits longer waits in vain. */
const PATIENCE_MS = 60_000;
/** Each look may ask another process: the longer it takes, the less often. It ends at most a twentieth later for that. */
const LOOK_EVERY_MS = 5;
const LOOK_AT_LEAST_EVERY_MS = 25;
const SHARE_OF_WAIT = 1 / 20;

/** Resolves once the condition holds; fails with the sentence otherwise. */
export async function eventually(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const sinceMs = performance.now();
  while (!(await holds())) {
    const waitedMs = performance.now() - sinceMs;
    if (waitedMs > PATIENCE_MS) throw new Error(`still not after ${PATIENCE_MS / 1000} s: ${what}`);
    const pauseMs = Math.min(Math.max(waitedMs * SHARE_OF_WAIT, LOOK_EVERY_MS), LOOK_AT_LEAST_EVERY_MS);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
