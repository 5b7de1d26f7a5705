/**
 * The reporter of a test run: prints like Node's `spec` reporter, on a terminal and in a pipe, and at the end one line
 * for each failure and Node's counts, so that the last lines of the output are enough.
 */
import { relative } from "node:path";
import { Readable } from "node:stream";
import { spec as SpecReporter } from "node:test/reporters";
import { fileURLToPath } from "node:url";
import { mapError, mapPlace } from "./source-places.mjs";

const COUNT = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ([\d.]+)$/;

/** Writes a run to `output` and returns node's counts, the failures and the names of the files that have one. */
export async function tell(events, output) {
  const failures = [];
  const files = new Set();
  const counts = new Map();
  async function* details() {
    for await (const event of events) {
      const { type, data } = event;
      if (type === "test:fail") mapError(data.details?.error);
      if (type === "test:fail" && isCause(data)) failures.push(data);
      if (type === "test:fail" && data.todo === undefined && data.nesting === 0) files.add(data.name);
      const count = type === "test:diagnostic" && data.nesting === 0 ? COUNT.exec(data.message) : null;
      if (count === null) yield event;
      else counts.set(count[1], Number(count[2]));
    }
  }
  const reporter = new SpecReporter();
  // A pipe does not pass errors on: without this a defect here would end the run without a word.
  Readable.from(details())
    .on("error", (error) => reporter.destroy(error))
    .pipe(reporter);
  for await (const text of reporter) output.write(text);
  return { counts, failures, files: [...files] };
}

/** The last lines: one for each failure, then the counts. */
export function tellEnd({ counts, failures }, output) {
  if (failures.length > 0) output.write(`\n${failures.length === 1 ? "1 failure" : `${failures.length} failures`}:\n`);
  for (const failure of failures) output.write(`✖ ${failure.name}${placeOf(failure)}\n`);
  if (failures.length > 0) output.write("\n");
  for (const [name, count] of counts) output.write(`ℹ ${name} ${count}\n`);
}

/** A suite fails because a test in it does: the test is named, not both. A test that may fail is none. */
function isCause({ details, todo }) {
  return todo === undefined && details?.error?.failureType !== "subtestsFailed";
}

function placeOf({ file, line }) {
  if (file === undefined) return "";
  const path = file.startsWith("file:") ? fileURLToPath(file) : file;
  const place = mapPlace(path, line ?? 1, 1) ?? { path, line };
  return ` (${relative(process.cwd(), place.path)}${line === undefined ? "" : `:${place.line}`})`;
}
