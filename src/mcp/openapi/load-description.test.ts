import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { threadCpuMs } from "../../../test/support/cpu-time.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { systemClock } from "../../base/clock.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch } from "../../http/fetch.ts";
import { OpenApi } from "./api.ts";
import { parseOpenApi } from "./document.ts";
import { convertDescription, loadDescription } from "./load-description.ts";

const YAML = peerInput("openapi-server/yaml-description");
const SELECTION = { reserved: [] };

function description(count: number): object {
  const paths = Object.fromEntries(
    Array.from({ length: count }, (_, i) => [
      `/items/${i}/{id}`,
      {
        post: {
          operationId: `item${i}`,
          parameters: [{ name: "id", in: "path", required: true, schema: { type: "string" } }],
          requestBody: { content: { "multipart/form-data": { schema: { properties: { a: { type: "integer" } } } } } },
          description: "x".repeat(1_000),
        },
      },
    ]),
  );
  return { openapi: "3.1.0", info: { title: "Large", version: "2", description: "About" }, paths };
}

for (const [format, text] of [
  ["YAML", stringify(description(60))],
  ["JSON", JSON.stringify(description(600))],
] as const)
  test(`a large description in ${format} is converted in a worker thread`, async () => {
    const expected = await convertDescription(parseOpenApi(text, YAML), SELECTION);
    const startMs = threadCpuMs();
    const loaded = await loadDescription(text, SELECTION, systemClock);
    assert.ok(threadCpuMs() - startMs < 300, `${threadCpuMs() - startMs} ms on this thread`);
    assert.deepEqual(loaded.about, expected.about);
    assert.deepEqual(JSON.stringify([...loaded.operations.byName]), JSON.stringify([...expected.operations.byName]));
    assert.equal(loaded.operations.byName.size, format === "YAML" ? 60 : 600);
  });

test("the worker thread reports why a description is invalid", async () => {
  const invalid = `openapi: "2.0"\n${"# \n".repeat(4_000)}`;
  await assert.rejects(loadDescription(invalid, SELECTION, systemClock), /not an OpenAPI 3 description/);
});

test("a description that cannot be loaded is fetched again after a growing delay", async () => {
  const clock = fakeClock();
  let fetches = 0;
  const fetch: Fetch = () => {
    fetches += 1;
    return Promise.reject(new Error("unreachable"));
  };
  const api = new OpenApi(
    { url: "http://api.test/openapi.json", server: "http://api.test", headers: {}, forwardHeaders: [] },
    {
      name: "api",
      clock,
      fetch,
      signer: () => undefined,
      maxMessageBytes: () => 1024,
      messages: createMemoryBudget(clock).messages.server(),
    } as unknown as ConstructorParameters<typeof OpenApi>[1],
  );
  for (const [delayMs, expected] of [[0, 1], [999, 1], [1, 2], [1_999, 2], [1, 3], [3_999, 3], [1, 4]] as const) {
    await clock.advance(delayMs);
    await assert.rejects(api.load(), /unreachable/);
    await assert.rejects(api.load(), /unreachable/);
    assert.equal(fetches, expected);
  } // biome-ignore format: a table
  api.close();
});
