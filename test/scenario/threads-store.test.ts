/**
 * With worker threads, the store in memory is on the heap of the main thread, which takes no requests itself. Filling the
 * store must not end the process.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { backendFor } from "../support/scenario.ts";
import { HELLO_ROUTE, startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const node = threadingNode();
const skip = node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false;
const MIB = 1024 * 1024;
/** Of the main thread. The store may use a fifth of it; API keys and budgets may use two fifths. */
const HEAP_MIB = 64;
const RESPONSE_BYTES = 450_000;

test("a store that clients and the operator fill to its limits does not end a process with threads [R50] [R53]", {
  skip,
}, async (t) => {
  let calls = 0;
  const { host } = await backendFor(t, (request, response) => {
    request.resume().on("end", () => {
      calls += 1;
      const message = { role: "assistant", content: String(calls).padEnd(RESPONSE_BYTES, "x") };
      const choices = [{ index: 0, message, finish_reason: "stop" }];
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ id: "1", object: "chat.completion", model: "m", choices }));
    });
  });
  const gateway = await startThreaded(
    t,
    threadedConfig(
      2,
      `${HELLO_ROUTE}
  - gateways: [main]
    name: llm
    matches: [{ path: { pathPrefix: /v1 } }]
    backends:
      - ai:
          name: test
          auth: { key: k }
          cache: { ttl: 10m, scope: shared }
          provider: { openAICompatible: { name: openai, baseUrl: "http://${host}/v1" } }
`,
    ),
    node ?? "",
    [`--max-old-space-size=${HEAP_MIB}`],
  );
  const hello = async (): Promise<number> => (await fetch(`${gateway.url}/hello`)).status;
  const ask = async (content: string): Promise<readonly [status: number, cache: string | null]> => {
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content }] }),
    });
    await response.arrayBuffer();
    return [response.status, response.headers.get("x-gateway-cache")];
  };
  const statuses = new Set<number>();
  const count = Math.ceil((1.2 * HEAP_MIB * MIB) / RESPONSE_BYTES);
  for (let i = 0; i < count; i += 8) {
    const batch = Array.from({ length: 8 }, async (_, n) => statuses.add((await ask(`${i + n}`))[0]));
    await Promise.all([...batch, hello().then((status) => statuses.add(status))]);
  }
  assert.deepEqual([...statuses], [200]);
  await eventually("the cache serves a response", async () => (await ask("again"))[1] === "hit");
  assert.equal((await ask("0"))[1], "miss", "the oldest response was evicted");

  const metadata = Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`m${i}`, "x".repeat(1_000)]));
  let made = 0;
  let rejected = 0;
  while (rejected < 3 && made < HEAP_MIB * 2) {
    const response = await fetch(`${gateway.adminUrl}/keys`, {
      method: "POST",
      body: JSON.stringify({ make: { name: `key ${made}`, metadata } }),
    });
    if (response.status === 200) made += 1;
    else rejected += 1;
    await response.arrayBuffer();
    assert.equal(await hello(), 200);
  }
  assert.ok(made > 0 && rejected === 3, `${made} keys were made`);
  for (let i = 0; i < 20; i++) assert.deepEqual([await hello(), (await ask(`more ${i}`))[0]], [200, 200]);
  assert.deepEqual([gateway.process.child.exitCode, gateway.process.child.signalCode], [null, null]);
});
