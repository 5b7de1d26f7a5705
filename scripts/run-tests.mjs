/**
 * Runs the given files on Node's test runner in the given order, with our reporter. Not `node --test`, which sorts the
 * files. The flags of this process are passed on to the test processes.
 */
import { dirname } from "node:path";
import { run } from "node:test";
import { cpuReport, readCpu } from "./test-cpu.mjs";
import { tell, tellEnd } from "./test-reporter.mjs";

/** For all files of a process. Longer means that a test waits for something that does not come. */
const LIMIT_MS = 1_800_000;

const [concurrency, ...files] = process.argv.slice(2);
const result = await tell(run({ files, concurrency: Number(concurrency), timeout: LIMIT_MS }), process.stdout);
for (const line of cpuReport(readCpu(dirname(files[0])))) console.log(line);
tellEnd(result, process.stdout);
process.exitCode = result.failures.length > 0 || result.files.length > 0 ? 1 : 0;
