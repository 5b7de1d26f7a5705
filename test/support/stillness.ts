/**
 * Waits until a count stops changing, for streams whose buffers are full. Measured in event-loop iterations, because
 * both ends and the gateway share this process.
 */
const STILL_TURNS = 300;

/** Resolves with the count, which is above zero, once it has not changed for many turns. */
export async function untilStill(count: () => number): Promise<number> {
  let last = 0;
  for (let still = 0; still < STILL_TURNS; still++) {
    await new Promise((resolve) => setImmediate(resolve));
    const now = count();
    if (now === 0 || now !== last) still = 0;
    last = now;
  }
  return last;
}
