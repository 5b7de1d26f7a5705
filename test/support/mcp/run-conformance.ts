/**
 * Prints the scores of the conformance suite (`npm run conformance`) for each fixture, directly and through the
 * gateway in several setups, for both protocol versions. Fails if a scenario that passes directly fails through the
 * gateway.
 */
import { type Revision, runSuite, type Score, startHttpFixture, suiteNode } from "./conformance.ts";
import { type Fixture, fixturesOf } from "./suite/suite-fixtures.ts";
import { SETUPS, type Setup } from "./suite/suite-setups.ts";

const REVISIONS: readonly Revision[] = ["2025-11-25", "2026-07-28"];
const TITLE_WIDTH = 60;

const node = suiteNode();
if (node === undefined) {
  console.error("The suite needs Node 22 or newer: run this with one, or install node-linux-<arch>.");
  process.exit(1);
}
const suite = node;

const [languages, filter] = wanted(process.argv.slice(2));
/** What fails without the gateway, by SDK and revision. */
const direct = new Map<string, ReadonlySet<string>>();
let isBelow = false;

console.log(`${"".padEnd(TITLE_WIDTH)}${REVISIONS.map((revision) => revision.padStart(12)).join("")}`);
for (const language of languages) {
  const fixtures = fixturesOf(language);
  if (typeof fixtures === "string") {
    console.log(`${language}: not run: ${fixtures}`);
    isBelow = true;
    continue;
  }
  for (const fixture of fixtures) await rows(fixture);
}
if (languages.includes("typescript") && filter === undefined) await converted();
process.exit(isBelow ? 1 : 0);

/** `[languages…] [--setup text]`: all of them by default. */
function wanted(args: readonly string[]): [string[], string | undefined] {
  const at = args.indexOf("--setup");
  const named = at < 0 ? args : args.slice(0, at);
  return [named.length > 0 ? [...named] : ["typescript", "python", "go"], at < 0 ? undefined : args[at + 1]];
}

async function rows(fixture: Fixture): Promise<void> {
  const { start } = fixture;
  if (start) {
    const setup = {
      title: "directly",
      run: async (_: Fixture, use: (url: string) => Promise<void>) => {
        const remote = await start();
        await use(remote.url).finally(() => remote.close());
      },
    };
    const scores = await row(fixture, setup);
    for (const [i, score] of scores.entries()) direct.set(`${fixture.sdk} ${REVISIONS[i]}`, failedScenarios(score));
  }
  for (const setup of SETUPS) if (filter === undefined || setup.title.includes(filter)) await row(fixture, setup);
}

/** Both eras at once, each with servers of its own: most of the time is waiting. */
async function row(fixture: Fixture, setup: Setup): Promise<Score[]> {
  const scores = await Promise.all(
    REVISIONS.map(async (revision) => {
      let score: Score | undefined;
      await setup.run(fixture, async (url) => {
        score = await runSuite(suite, url, revision);
        const known = direct.get(`${fixture.sdk} ${revision}`);
        // A scenario that depends on timing may fail on a busy machine: it counts if it fails twice.
        if (known && lost(score, known).length > 0) score = better(score, await runSuite(suite, url, revision));
      });
      if (score === undefined) throw new Error("the suite did not run");
      return score;
    }),
  );
  const notes = scores.flatMap((score, i) => {
    const known = direct.get(`${fixture.sdk} ${REVISIONS[i]}`);
    const missing = known ? lost(score, known) : score.failures;
    if (known && missing.length > 0) isBelow = true;
    return missing.map((failure) => `    ${REVISIONS[i]} ${failure}`);
  });
  const figures = scores.map(({ passed, scored }) => `${passed} of ${scored}`.padStart(12)).join("");
  console.log([`${fixture.name}, ${setup.title}`.padEnd(TITLE_WIDTH) + figures, ...notes].join("\n"));
  return scores;
}

/** Servers of one era only, which the gateway converts: for information, since no direct figure compares. */
async function converted(): Promise<void> {
  const [gateway] = SETUPS;
  for (const flag of ["--modern-only", "--legacy-only"]) {
    const name = `TypeScript, HTTP ${flag.slice(2)}`;
    if (gateway) await row({ name, sdk: name, start: () => startHttpFixture(flag) }, gateway);
  }
}

function failedScenarios({ failures }: Score): ReadonlySet<string> {
  return new Set(failures.map((line) => line.split(":", 1)[0] ?? ""));
}

/** Failures of scenarios that pass without the gateway. */
function lost({ failures }: Score, known: ReadonlySet<string>): string[] {
  return failures.filter((line) => !known.has(line.split(":", 1)[0] ?? ""));
}

function better(one: Score, other: Score): Score {
  const failed = failedScenarios(other);
  const failures = one.failures.filter((line) => failed.has(line.split(":", 1)[0] ?? ""));
  const { size } = failedScenarios({ ...one, failures });
  return { scored: one.scored, passed: one.scored - size, failures };
}
