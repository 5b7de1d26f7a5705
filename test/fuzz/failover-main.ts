/**
 * The program behind `npm run fuzz:failover -- [--count N] [--seed S]`: cases in batches, each with a gateway and a seed
 * of its own, so that a finding names a small run that shows it again. Ends with 1 on a finding.
 */
import { parseArgs } from "node:util";
import { fuzzFailover } from "./failover.ts";

const BATCH = 500;
const REPORT_EVERY = 5_000;
const MAX_FINDINGS = 20;

const { values } = parseArgs({ options: { count: { type: "string" }, seed: { type: "string" } } });
const count = Number(values.count ?? 2_000);
const firstSeed = Number(values.seed ?? 1);

let done = 0;
let reported = 0;
const findings: string[] = [];
for (let seed = firstSeed; done < count && findings.length < MAX_FINDINGS; seed++) {
  const size = Math.min(BATCH, count - done);
  const found = await fuzzFailover({ count: size, seed });
  done += size;
  for (const finding of found) console.error(`FINDING (--count ${size} --seed ${seed}): ${finding}`);
  findings.push(...found);
  if (done - reported >= REPORT_EVERY || done === count) {
    reported = done;
    console.log(`${done} of ${count} cases, ${findings.length} findings`);
  }
}
process.exitCode = findings.length === 0 ? 0 : 1;
