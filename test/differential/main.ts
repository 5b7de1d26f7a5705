/**
/**
 * The program behind `npm run test:differential -- [--count N] [--seed S] [--backends node,python,go]`. With `--heads`,
 * each head goes through every way into the gateway; with `--openapi <server>`, the arguments of OpenAPI tools are
 * compared. Prints what came of the requests and exits with 1 on a finding.
 */
import { parseArgs } from "node:util";
import type { BackendName } from "./backends.ts";
import { runHeads } from "./heads.ts";
import { runOpenApiDifferential } from "./openapi.ts";
import { runDifferential } from "./run.ts";

const CONNECTIONS = 16;

const { values } = parseArgs({
  options: {
    count: { type: "string" },
    seed: { type: "string" },
    backends: { type: "string" },
    openapi: { type: "string" },
    heads: { type: "boolean" },
  },
});
const backends = (values.backends ?? "node,python,go").split(",") as BackendName[];
const count = Number(values.count ?? 100_000);
if (values.openapi !== undefined) {
  const { openapi: server } = values;
  const seed = Number(values.seed ?? 1);
  const report = await runOpenApiDifferential({ server, count, seed, connections: CONNECTIONS });
  if (report.skipped !== undefined) console.log(`SKIPPED: ${report.skipped}`);
  for (const finding of report.findings) console.error(`FINDING ${finding}`);
  console.log(
    `${report.compared} calls compared, ${report.rejected} rejected, ${report.unread} unreadable for rules, ${report.findings.length} findings`,
  );
  process.exit(report.findings.length === 0 ? 0 : 1);
}
const { findings, skipped, counts, seconds } = await (values.heads ? runHeads : runDifferential)({
  backends,
  count: Math.ceil(count / backends.length),
  seed: Number(values.seed ?? 1),
  connections: CONNECTIONS,
});
for (const reason of skipped) console.log(`SKIPPED: ${reason}`);
for (const [outcome, requests] of [...counts].sort()) console.log(`${String(requests).padStart(8)} ${outcome}`);
for (const finding of findings) console.error(`FINDING ${finding}`);
console.log(`${findings.length} findings in ${seconds.toFixed(0)} s`);
process.exitCode = findings.length === 0 ? 0 : 1;
