import { test } from "node:test";
import { fuzzNonsense } from "../../test/support/mcp/fuzz-nonsense.ts";

test("whatever some servers send, every request is answered, and the good servers' items arrive", async () => {
  // Other seeds, and more of them, by hand: `NONSENSE_SEED=1000 NONSENSE_COUNT=500`.
  const { NONSENSE_SEED = "1", NONSENSE_COUNT = "24" } = process.env;
  await fuzzNonsense({ seed: Number(NONSENSE_SEED), count: Number(NONSENSE_COUNT) });
});
