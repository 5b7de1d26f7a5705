/** Loaded into every contestant, so that memory can be read without what waits for the collector. SIGUSR2 would start an upgrade. */
process.on("SIGALRM", () => globalThis.gc());
