/**
 * Returns a function that returns numbers from 0 to below 1, which depend only on the seed (mulberry32).
 */
export function randomOf(seed) {
  let state = Math.imul(seed ^ (seed / 2 ** 32), 0x9e3779b1) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
