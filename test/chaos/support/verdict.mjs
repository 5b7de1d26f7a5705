/**
 * Prints what a run came to, and ends the process with 1 if anything is broken.
 */
const MIB = 1024 * 1024;

export function mib(bytes) {
  return `${(bytes / MIB).toFixed(1)} MiB`;
}

export function printCounts({ counts, faults }) {
  console.log(
    "\n| Traffic | Answered | Failed, explained | Failed, unexplained | Wrong | Hung |\n|---|---|---|---|---|---|",
  );
  for (const [kind, { answered, explained, unexplained, wrong, hung }] of counts)
    console.log(`| ${kind} | ${answered} | ${explained} | ${unexplained} | ${wrong} | ${hung} |`);
  if (faults.length === 0) return;
  const byName = new Map();
  for (const { name } of faults) byName.set(name, (byName.get(name) ?? 0) + 1);
  console.log(`\n${faults.length} faults: ${[...byName].map(([name, times]) => `${name} ${times}`).join(", ")}`);
}

export function endWith(broken) {
  for (const line of broken.slice(0, 30)) console.log(`BROKEN: ${line}`);
  if (broken.length > 30) console.log(`BROKEN: ${broken.length - 30} more`);
  console.log(broken.length === 0 ? "\nverdict: good" : `\nverdict: ${broken.length} things are broken`);
  process.exit(broken.length === 0 ? 0 : 1);
}

/** The rise of the least-squares line from the first sample to the last. */
export function growth(samples) {
  const n = samples.length;
  if (n < 2) return 0;
  const meanX = (n - 1) / 2;
  const meanY = samples.reduce((sum, y) => sum + y, 0) / n;
  let covariance = 0;
  let variance = 0;
  for (const [x, y] of samples.entries()) {
    covariance += (x - meanX) * (y - meanY);
    variance += (x - meanX) ** 2;
  }
  return (covariance / variance) * (n - 1);
}
