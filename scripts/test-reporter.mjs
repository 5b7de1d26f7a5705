/**
 * How a run of the tests is told: as node's own `spec` reporter does, whether a terminal reads it or a pipe, and at the
 * end, below all details, one line for each failure and then node's counts. Whoever sees only the last lines sees both.
 */
import { relative } from "node:path";
import { Readable } from "node:stream";
import { spec as SpecReporter } from "node:test/reporters";
import { fileURLToPath } from "node:url";

const COUNT = /^(?:tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

// biome-ignore lint/style/noDefaultExport: node's runner takes a reporter as the default export.
export default async function* report(events) {
  const failures = [];
  const counts = [];
  async function* details() {
    for await (const event of events) {
      const { type, data } = event;
      if (type === "test:fail" && isCause(data)) failures.push(data);
      if (type === "test:diagnostic" && data.nesting === 0 && COUNT.test(data.message)) counts.push(data.message);
      else yield event;
    }
  }
  yield* Readable.from(details()).pipe(new SpecReporter());
  if (failures.length > 0) yield `\n${failures.length === 1 ? "1 failure" : `${failures.length} failures`}:\n`;
  for (const failure of failures) yield `✖ ${failure.name}${placeOf(failure)}\n`;
  if (failures.length > 0) yield "\n";
  for (const count of counts) yield `ℹ ${count}\n`;
}

/** A suite fails because a test in it does: the test is named, not both. A test that may fail is none. */
function isCause({ details, todo }) {
  return todo === undefined && details?.error?.failureType !== "subtestsFailed";
}

function placeOf({ file, line }) {
  if (file === undefined) return "";
  const path = relative(process.cwd(), file.startsWith("file:") ? fileURLToPath(file) : file);
  return ` (${path}${line === undefined ? "" : `:${line}`})`;
}
