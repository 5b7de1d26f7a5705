/**
 * Runs the given files on node's own runner, in the given order, and tells it with our reporter. Not `node --test`,
 * which sorts the files. The flags of this process are those of the test processes.
 */
import { run } from "node:test";
import report from "./test-reporter.mjs";

/** For all files of a process. Longer means that a test waits for something that does not come. */
const LIMIT_MS = 1_800_000;

const [concurrency, ...files] = process.argv.slice(2);
const stream = run({ files, concurrency: Number(concurrency), timeout: LIMIT_MS });
stream.on("test:fail", ({ todo }) => {
  if (todo === undefined || todo === false) process.exitCode = 1;
});
stream.compose(report).pipe(process.stdout);
