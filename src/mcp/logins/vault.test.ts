import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../base/clock.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { Vault } from "./vault.ts";

const SECRET = "a secret of at least thirty-two characters";

test("only one of several concurrent callers takes a record", async () => {
  const vault = new Vault(createMemoryStore(systemClock), SECRET);
  await vault.put("place", "value");
  const taken = await Promise.all([vault.take("place"), vault.take("place"), vault.take("place")]);
  assert.deepEqual(
    taken.filter((one) => one !== undefined),
    ["value"],
  );
  assert.equal(await vault.get("place"), undefined);
});

test("a record stored during an unsuccessful take is found by the next one", async () => {
  const store = createMemoryStore(systemClock);
  const writer = new Vault(store, SECRET);
  const reader = new Vault(
    {
      ...store,
      async get(key) {
        const found = await store.get(key);
        // Another replica writes just after the look.
        if (found === undefined) await writer.put(key, "value");
        return found;
      },
    },
    SECRET,
  );
  assert.equal(await reader.take("place"), undefined);
  assert.equal(await reader.take("place"), "value");
});
