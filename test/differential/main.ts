/**
 * The program behind `npm run test:differential -- [--count N] [--seed S] [--backends node,python,go]`. With `--heads`,
 * each head goes through every way into the gateway; with `--openapi <server>`, the arguments of OpenAPI tools are
 * compared; with `--tokens`, PyJWT and the gateway judge tokens. Prints what came of the requests and exits with 1 on a finding.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { parseArgs } from "node:util";
import type { BackendName } from "./backends.ts";
import { runHeads } from "./heads.ts";
import { runOpenApiDifferential } from "./openapi.ts";
import { type DifferentialReport, runDifferential } from "./run.ts";
import { runTokenDifferential } from "./tokens.ts";

const CONNECTIONS = 16;
/** Each of them has a connection for every way into the gateway. */
const HEAD_CONNECTIONS = 4;

const { values } = parseArgs({
  options: {
    count: { type: "string" },
    seed: { type: "string" },
    backends: { type: "string" },
    openapi: { type: "string" },
    heads: { type: "boolean" },
    tokens: { type: "boolean" },
    python: { type: "string" },
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
const seed = Number(values.seed ?? 1);
if (values.tokens === true) {
  const { findings, skipped, version, counts } = await runTokenDifferential({
    python: values.python ?? "python3",
    count,
    seed,
  });
  console.log(skipped === undefined ? version : `SKIPPED: ${skipped}`);
  for (const [outcome, tokens] of [...counts].sort()) console.log(`${String(tokens).padStart(8)} ${outcome}`);
  for (const finding of findings) console.error(`FINDING ${finding}`);
  process.exit(findings.length === 0 ? 0 : 1);
}
const share = Math.ceil(count / backends.length);
const { findings, skipped, counts, seconds } = !values.heads
  ? await runDifferential({ backends, count: share, seed, connections: CONNECTIONS })
  : backends.length === 1
    ? await runHeads({ backends, count: share, seed, connections: HEAD_CONNECTIONS })
    : await runHeadsInProcesses();
if (process.send !== undefined) {
  process.send({ findings, skipped, counts: [...counts], seconds });
  process.disconnect();
} else {
  for (const reason of skipped) console.log(`SKIPPED: ${reason}`);
  for (const [outcome, requests] of [...counts].sort()) console.log(`${String(requests).padStart(8)} ${outcome}`);
  for (const finding of findings) console.error(`FINDING ${finding}`);
  console.log(`${findings.length} findings in ${seconds.toFixed(0)} s`);
  process.exitCode = findings.length === 0 ? 0 : 1;
}

/** Each backend has its own gateway and process, so that they use several cores. */
async function runHeadsInProcesses(): Promise<DifferentialReport> {
  const total: DifferentialReport = { findings: [], skipped: [], counts: new Map(), seconds: 0 };
  await Promise.all(
    backends.map(async (backend, i) => {
      const options = ["--heads", "--backends", backend, "--count", String(share), "--seed", String(seed + i)];
      const child = fork(process.argv[1] as string, options);
      const [report] = (await Promise.race([
        once(child, "message"),
        once(child, "exit").then(([code]) =>
          Promise.reject(new Error(`the process for ${backend} ended with ${code}`)),
        ),
      ])) as [{ findings: string[]; skipped: string[]; counts: [string, number][]; seconds: number }];
      total.findings.push(...report.findings);
      total.skipped.push(...report.skipped);
      for (const [outcome, heads] of report.counts) total.counts.set(outcome, (total.counts.get(outcome) ?? 0) + heads);
      total.seconds = Math.max(total.seconds, report.seconds);
    }),
  );
  return total;
}
