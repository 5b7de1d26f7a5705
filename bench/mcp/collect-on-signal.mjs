/** Loaded into every contestant, so that memory can be read without what waits for the collector. */
process.on("SIGUSR2", () => globalThis.gc());
