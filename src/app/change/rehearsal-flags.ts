/**
 * How Node runs the process of rehearsals. V8 compiles and collects on its one thread, which has the lower priority: on threads of
 * its own it would take the processors from those that serve. Walks leave nothing behind: with room for many of them the collector
 * has little to do. What V8 made of the code beforehand (`scripts/rehearsal-code.mjs`) only fits the same flags.
 */
export const REHEARSAL_FLAGS: readonly string[] = [
  "--single-threaded",
  "--max-semi-space-size=32",
  "--max-old-space-size=512",
];
