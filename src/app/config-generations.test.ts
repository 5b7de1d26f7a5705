/**
 * Resources and dry runs keep nothing of the configuration that they belong to.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { everyResource, SPREAD } from "../../test/support/every-resource.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { collectAllGarbage } from "../../test/support/garbage.ts";
import { createPreview } from "../admin/ui/preview.ts";
import { LivingObjects } from "../base/living-objects.ts";
import { finish } from "../base/sliced-work.ts";
import type { SourceText } from "../config/load/load.ts";
import type { PreparedConfig } from "../config/prepare.ts";
import { readTraffic } from "../record/recorded-request.ts";
import { createConfigLoader } from "./config-loader.ts";
import { runAccessReview } from "./rehearsal/access.ts";
import { rehearse } from "./rehearsal/rehearse.ts";
import { openServices } from "./services.ts";
import { whatIf } from "./validate.ts";

const RELOADS = 200;
const TEST = [{ name: "a test", request: { url: "/" }, expect: { status: 404 } }];
const output = { write: () => undefined, dropped: () => 0, flushSync: () => undefined };
const uiSource = { read: () => undefined } as never;

async function livingAfter(count: number, run: (version: number, living: LivingObjects) => unknown): Promise<number> {
  const living = new LivingObjects();
  for (let version = 1; version <= count; version++) {
    await run(version, living);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await collectAllGarbage();
  return living.count();
}

test("resources that survive a reload retain neither the configuration nor the document that opened them", async () => {
  const services = openServices({ clock: fakeClock(), environment: {}, output });
  let text = everyResource(0, { tests: TEST });
  const sources = { read: () => [{ file: "config.json", text }], paths: () => [], content: () => "" };
  const loader = createConfigLoader(services, { sources, uiSource, thread: "main", shared: () => undefined });
  const first = services.resources.begin();
  let running = finish(loader.load(first)) as PreparedConfig;
  assert.ok(running.ok, JSON.stringify(running));
  first.commit();
  // The document and the topology of the configuration that is served.
  assert.equal(
    await livingAfter(4 * SPREAD, (version, living) => {
      text = everyResource(version, { tests: TEST });
      const generation = services.resources.begin();
      running = finish(loader.load(generation, running)) as PreparedConfig;
      assert.ok(running.ok);
      generation.commit();
      living.add(running.topology);
      living.add(running.tests[0]?.document as object);
    }),
    2,
  );
  await services.resources.closeAll();
  services.fetcher.close();
});

const clock = fakeClock();
const options = { environment: {}, clock };
const question = { request: { url: "/r0/x" }, given: undefined, repeat: 1 };
const access = { environment: {}, storedKeys: [], claimSets: [], tools: [] };
const DRY: Readonly<Record<string, (sources: readonly SourceText[]) => unknown>> = {
  "a what-if question": (sources) => whatIf(question, sources, options),
  "a rehearsal": (sources) =>
    rehearse({ before: sources, after: [...sources], environment: {} }, readTraffic([]), clock),
  "an access review": (sources) => runAccessReview({ sources, ...access }, readTraffic([]), clock),
  "a preview of an edit": createPreview(options),
};
for (const [name, run] of Object.entries(DRY)) {
  test(`${name} retains nothing`, async () => {
    const living = livingAfter(RELOADS, async (version, counted) => {
      const sources = [
        {
          file: "config.yaml",
          text: `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "a:${version}" }] }]`,
        },
      ];
      counted.add(sources);
      await run(sources);
    });
    assert.equal(await living, 0);
  });
}
