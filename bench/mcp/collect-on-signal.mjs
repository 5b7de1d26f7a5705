/**
 * Loaded into every compared program to collect garbage before memory is measured. SIGUSR2 is not used, because it
 * starts an upgrade.
 */
process.on("SIGALRM", () => globalThis.gc());
