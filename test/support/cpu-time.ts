/**
 * CPU time of this process, in milliseconds: for tests that something is bounded. The clock on the wall also counts
 * what other programs do meanwhile.
 */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
