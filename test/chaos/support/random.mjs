/**
 * Random choices that a seed repeats. Two runs with one seed choose the same faults in the same order; the times at
 * which requests meet them are the machine's.
 */
import { randomOf } from "../../../scripts/random.mjs";

export function openRandom(seed) {
  const next = randomOf(seed);
  return {
    /** A whole number from `low` to `high`, both included. */
    between: (low, high) => low + Math.floor(next() * (high - low + 1)),
    pick: (list) => list[Math.floor(next() * list.length)],
    chance: (share) => next() < share,
  };
}
