import { test } from "node:test";
import { fuzzNonsense } from "../../test/support/mcp/fuzz-nonsense.ts";

test("every request gets a response with the items of valid servers, whatever other servers send", async () => {
  // Other seeds, and more of them, by hand: `NONSENSE_SEED=1000 NONSENSE_COUNT=500`.
  const { NONSENSE_SEED = "1", NONSENSE_COUNT = "24" } = process.env;
  await fuzzNonsense({ seed: Number(NONSENSE_SEED), count: Number(NONSENSE_COUNT) });
});
