import assert from "node:assert/strict";
import { test } from "node:test";
import { type RawClient, rawClient } from "../../../test/support/mcp/client.ts";
import { modernPost } from "../../../test/support/mcp/modern-client.ts";
import {
  type Script,
  type ScriptedServer,
  type Step,
  startScripted,
  type Transport,
} from "../../../test/support/mcp/scripted-server.ts";
import { serveMcp } from "../../../test/support/mcp/serve-backend.ts";

const TRANSPORTS: readonly Transport[] = ["stdio", "http", "sse"];
const FAILED_TARGETS = "gateway.internal/failedTargets";

/** A script that does this to the first request of a method. */
function once(name: string, method: string, steps: readonly Step[], era?: "legacy" | "modern"): Script {
  return { name, steps: { [method]: [steps] }, ...(era ? { era } : {}) };
}

async function withServers(
  servers: readonly (readonly [Transport, Script])[],
  config: object,
  run: (client: RawClient, url: string) => Promise<void>,
): Promise<void> {
  const started: ScriptedServer[] = [];
  for (const [transport, script] of servers) started.push(await startScripted(transport, script));
  const served = await serveMcp({ targets: started.map(({ target }) => target), requestTimeout: "1s", ...config });
  try {
    await run(rawClient(served.url), served.url);
  } finally {
    await served.close();
    for (const one of started) await one.close();
  }
}

const BAD_LIST = '{"jsonrpc":"2.0","id":$ID,"result":{"tools":[{"name":bad}]}}';
const GOOD: Script = { name: "good", steps: {} };
const neighbours: readonly { what: string; script: Script }[] = [
  { what: "a good one", script: { name: "other", steps: {} } },
  { what: "a silent one", script: once("other", "tools/list", []) },
  { what: "one that exits", script: once("other", "tools/list", [{ end: "exit" }]) },
  { what: "another broken one", script: once("other", "tools/list", [{ message: BAD_LIST }]) },
];
for (const transport of TRANSPORTS) {
  for (const { what, script } of neighbours) {
    for (const order of ["first", "last"]) {
      test(`broken JSON in a list over ${transport} beside ${what}, ${order}: the others' tools arrive`, async () => {
        const bad: readonly [Transport, Script] = [transport, once("bad", "tools/list", [{ message: BAD_LIST }])];
        const others: readonly (readonly [Transport, Script])[] = [
          ["stdio", GOOD],
          ["stdio", script],
        ];
        await withServers(order === "first" ? [bad, ...others] : [...others, bad], {}, async (client) => {
          await client.initialize();
          const { result } = await client.request("tools/list");
          assert.ok(result.tools.some((tool: { name: string }) => tool.name === "good_echo"));
          assert.match(result._meta[FAILED_TARGETS].bad, /target "bad" answered with invalid JSON: unexpected text/);
          // One that exits rests for a moment; the broken one needs no restart.
          const again = await client.request("tools/list");
          for (const name of ["good_echo", "bad_echo"])
            assert.ok(again.result.tools.some((tool: { name: string }) => tool.name === name));
        });
      });
    }
  }

  test(`broken JSON of a single target over ${transport} fails the call with its name`, async () => {
    await withServers([[transport, once("bad", "tools/list", [{ message: BAD_LIST }])]], {}, async (client) => {
      await client.initialize();
      const { error } = await client.request("tools/list");
      assert.match(error.message, /target "bad" answered with invalid JSON/);
      assert.equal((await client.request("tools/list")).result.tools.length, 1);
    });
  });

  test(`broken JSON over ${transport} reaches a modern client as an error, and the others' tools arrive`, async () => {
    const bad: readonly [Transport, Script] = [transport, once("bad", "tools/list", [{ message: BAD_LIST }])];
    await withServers([bad], {}, async (_client, url) => {
      const { message } = await modernPost(url, "tools/list");
      assert.match(message.error.message, /target "bad" answered with invalid JSON/);
    });
    await withServers([bad, ["stdio", GOOD]], {}, async (_client, url) => {
      const { message } = await modernPost(url, "tools/list");
      assert.deepEqual(
        message.result.tools.map((tool: { name: string }) => tool.name),
        ["good_echo"],
      );
    });
  });
}
