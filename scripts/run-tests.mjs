/**
 * Runs the given files on Node's test runner in the given order, with our reporter. Not `node --test`, which sorts the
 * files. The flags of this process are passed on to the test processes.
 *
 * A file that fails next to others runs again alone, because some tests time out on a busy machine. Files that then
 * pass are listed at the end; files that fail twice have failed. With more than a few failures, nothing is repeated.
 */
import { dirname, join } from "node:path";
import { run } from "node:test";
import { cpuReport, readCpu } from "./test-cpu.mjs";
import { groupTests } from "./test-groups.mjs";
import { tell, tellEnd } from "./test-reporter.mjs";

/** For all files of a process. Longer means that a test waits for something that does not come. */
const LIMIT_MS = 1_800_000;
const MAX_FILES_AGAIN = 4;

const [concurrency, ...entries] = process.argv.slice(2);
const first = await runFiles(entries, Number(concurrency));
const cpuOfFirst = readCpu(dirname(entries[0]));
const again = first.files.filter((name) => name.endsWith(".test.ts"));
const isAgain = again.length > 0 && again.length === first.files.length && again.length <= MAX_FILES_AGAIN;
const result = isAgain ? await runAgain() : first;
for (const line of cpuReport(readCpu(dirname(entries[0]), isAgain ? cpuOfFirst : undefined))) console.log(line);
tellEnd(result, process.stdout);
process.exitCode = result.failures.length > 0 || result.files.length > 0 ? 1 : 0;

function runFiles(files, atOnce) {
  return tell(run({ files, concurrency: atOnce, timeout: LIMIT_MS }), process.stdout);
}

async function runAgain() {
  tellEnd(first, process.stdout);
  console.log(`\n${again.length === 1 ? "1 file" : `${again.length} files`} with failures, again and alone:\n`);
  const out = dirname(dirname(entries[0]));
  const second = await runFiles(
    groupTests(
      out,
      again.map((name) => join(out, name.replace(/\.ts$/, ".js"))),
    ),
    1,
  );
  const passed = again.filter((name) => !second.files.includes(name));
  if (passed.length > 0) console.log(`\nfailed beside others, passed alone: ${passed.join(", ")}`);
  return { ...second, counts: merged(first.counts, second.counts) };
}

/** All tests of the first run, with the results of the second run for those that failed. */
function merged(one, other) {
  const counts = new Map(one);
  const failed = (of) => (of.get("fail") ?? 0) + (of.get("cancelled") ?? 0);
  counts.set("pass", (one.get("pass") ?? 0) + failed(one) - failed(other));
  for (const name of ["fail", "cancelled"]) counts.set(name, other.get(name) ?? 0);
  counts.set("duration_ms", (one.get("duration_ms") ?? 0) + (other.get("duration_ms") ?? 0));
  return counts;
}
