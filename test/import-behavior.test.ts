/**
 * Imported LiteLLM configurations send the requests that LiteLLM sent, and answer as it did.
 * `npm run compare-imports` recorded what LiteLLM did.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { compareObserved, NOT_COMPARED } from "./support/import/behavior/differences.ts";
import { goldenText, observeImported } from "./support/import/behavior/imported-gateway.ts";
import { callsFor, type Observed } from "./support/import/behavior/litellm-calls.ts";
import { startProviders } from "./support/import/behavior/providers.ts";

const SOURCES = join(process.cwd(), "test", "import", "litellm");
const RECORDED = join(process.cwd(), "test", "support", "import", "behavior", "recorded");
const names = readdirSync(RECORDED).map((name) => basename(name, ".json"));

test("every LiteLLM file was compared", () => {
  const sources = readdirSync(SOURCES).filter((name) => !name.endsWith(".golden.yaml"));
  const compared = sources.map((name) => basename(name, ".yaml")).filter((name) => !Object.hasOwn(NOT_COMPARED, name));
  assert.deepEqual(names.sort(), compared.sort());
});

for (const name of names)
  test(`LiteLLM and the imported configuration do the same: ${name}`, async (t) => {
    const recorded: Readonly<Record<string, Observed>> = JSON.parse(
      readFileSync(join(RECORDED, `${name}.json`), "utf8"),
    );
    const calls = callsFor(readFileSync(join(SOURCES, `${name}.yaml`), "utf8"));
    const providers = await startProviders();
    t.after(() => providers.close());
    const ours = await observeImported(name, calls, providers);
    const found = calls.flatMap((call, i) => compareObserved(call, recorded[call.name], ours[i], goldenText(name)));
    assert.deepEqual(
      found.filter(({ reason }) => reason === undefined),
      [],
    );
  });
