import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { modernPost } from "../../test/support/mcp/modern-client.ts";
import { FAILED_TARGETS, withServers } from "../../test/support/mcp/scripted-gateway.ts";
import type { Script, Step, Transport } from "../../test/support/mcp/scripted-server.ts";

const TRANSPORTS: readonly Transport[] = ["stdio", "http", "sse"];

/** Longer than a server needs on a busy machine. Tests of silent servers have their own limits. */
const PATIENT = { requestTimeout: "60s" };

/** A script that does this to the first request of a method. */
function once(name: string, method: string, steps: readonly Step[], era?: "legacy" | "modern"): Script {
  return { name, steps: { [method]: [steps] }, ...(era ? { era } : {}) };
}

const BAD_LIST = '{"jsonrpc":"2.0","id":$ID,"result":{"tools":[{"name":bad}]}}';
const GOOD: Script = { name: "good", steps: {} };
const neighbours: readonly { what: string; script: Script; requestTimeout: string }[] = [
  { what: "a good one", script: { name: "other", steps: {} }, requestTimeout: "60s" },
  { what: "a silent one", script: once("other", "tools/list", []), requestTimeout: "15s" },
  { what: "one that exits", script: once("other", "tools/list", [{ end: "exit" }]), requestTimeout: "60s" },
  { what: "another broken one", script: once("other", "tools/list", [{ message: BAD_LIST }]), requestTimeout: "60s" },
];
for (const { what, script, requestTimeout } of neighbours) {
  // Side by side: beside a silent server each test waits for the whole limit, which must be long for a busy machine.
  describe(`beside ${what}`, { concurrency: true }, () => {
    for (const [transport, order] of TRANSPORTS.flatMap((one) => [[one, "first"] as const, [one, "last"] as const])) {
      test(`broken JSON in a list over ${transport} beside ${what}, ${order}: the others' tools arrive`, async () => {
        const bad: readonly [Transport, Script] = [transport, once("bad", "tools/list", [{ message: BAD_LIST }])];
        const others: readonly (readonly [Transport, Script])[] = [
          ["stdio", GOOD],
          ["stdio", script],
        ];
        const servers = order === "first" ? [bad, ...others] : [...others, bad];
        await withServers(servers, { requestTimeout }, async (client) => {
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
  });
}

for (const transport of TRANSPORTS) {
  test(`broken JSON of a single target over ${transport} fails the call with its name`, async () => {
    await withServers([[transport, once("bad", "tools/list", [{ message: BAD_LIST }])]], PATIENT, async (client) => {
      await client.initialize();
      const { error } = await client.request("tools/list");
      assert.match(error.message, /target "bad" answered with invalid JSON/);
      assert.equal((await client.request("tools/list")).result.tools.length, 1);
    });
  });

  test(`broken JSON over ${transport} reaches a modern client as an error, and the others' tools arrive`, async () => {
    const bad: readonly [Transport, Script] = [transport, once("bad", "tools/list", [{ message: BAD_LIST }])];
    await withServers([bad], PATIENT, async (_client, url) => {
      const { message } = await modernPost(url, "tools/list");
      assert.match(message.error.message, /target "bad" answered with invalid JSON/);
    });
    await withServers([bad, ["stdio", GOOD]], PATIENT, async (_client, url) => {
      const { message } = await modernPost(url, "tools/list");
      assert.deepEqual(
        message.result.tools.map((tool: { name: string }) => tool.name),
        ["good_echo"],
      );
    });
  });
}

for (const transport of TRANSPORTS) {
  test(`a page over ${transport} that names itself as the next is not read for ever`, async () => {
    const again = { message: '{"jsonrpc":"2.0","id":$ID,"result":{"tools":[{"name":"echo"}],"nextCursor":"x"}}' };
    const endless: Script = { name: "bad", steps: { "tools/list": Array.from({ length: 50 }, () => [again]) } };
    for (const others of [[], [["stdio", GOOD] as const]]) {
      await withServers([[transport, endless], ...others], PATIENT, async (client) => {
        await client.initialize();
        const { result } = await client.request("tools/list");
        const next = await client.request("tools/list", { cursor: result.nextCursor });
        assert.match(
          next.error?.message ?? next.result._meta[FAILED_TARGETS].bad,
          /"bad" answered tools\/list with the same/,
        );
        assert.equal(next.result?.nextCursor, undefined);
      });
    }
    // Without prefixes a call must read the lists first.
    await withServers(
      [
        [transport, endless],
        ["stdio", GOOD],
      ],
      { ...PATIENT, prefixMode: "never" },
      async (client) => {
        await client.initialize();
        assert.equal((await client.call("echo")).result.content[0].text, "echo of bad");
      },
    );
  });
}

const handshakes: readonly { name: string; message: string; reason: RegExp }[] = [
  { name: "broken JSON", message: '{"id":$ID,"result":{"protocolVersion":bad}}', reason: /invalid JSON/ },
  { name: "no version", message: '{"id":$ID,"result":{"capabilities":{}}}', reason: /without a protocol version/ },
  {
    name: "a version that would be a header of its own",
    message: '{"id":$ID,"result":{"protocolVersion":"2025-11-25\\r\\nx-more: 1","capabilities":{}}}',
    reason: /without a protocol version/,
  },
  {
    name: "a version that is a number",
    message: '{"id":$ID,"result":{"protocolVersion":5}}',
    reason: /without a protocol/,
  },
  { name: "null", message: '{"id":$ID,"result":null}', reason: /not an object/ },
];
for (const transport of TRANSPORTS) {
  for (const { name, message, reason } of handshakes) {
    test(`${name} as the answer to initialize over ${transport} refuses the session, with the reason`, async () => {
      const always = Array.from({ length: 10 }, () => [{ message }]);
      const script: Script = { name: "bad", steps: { initialize: always } };
      await withServers([[transport, script]], PATIENT, async (client) => {
        const { status, message: answer } = await client.initialize();
        assert.equal(status, 200);
        assert.match(answer.error.message, /target "bad"/);
        assert.match(answer.error.message, reason);
      });
      await withServers(
        [
          [transport, script],
          ["stdio", GOOD],
        ],
        PATIENT,
        async (client) => {
          const { message: answer } = await client.initialize();
          assert.match(answer.result._meta[FAILED_TARGETS].bad, reason);
        },
      );
    });
  }
}

test("capabilities of any shape are merged", async () => {
  const about =
    '{"protocolVersion":"2025-11-25","capabilities":{"tools":[],"logging":null,"x":{"y":5}},"serverInfo":7}';
  const script = once("bad", "initialize", [{ message: `{"id":$ID,"result":${about}}` }]);
  await withServers(
    [
      ["stdio", script],
      ["stdio", GOOD],
    ],
    PATIENT,
    async (client) => {
      const { message } = await client.initialize();
      assert.equal(message.result.protocolVersion, "2025-11-25");
      assert.equal((await client.request("tools/list")).result.tools.length, 2);
    },
  );
});

test("a server that returns only legacy versions for server/discover is a legacy server", async () => {
  const script = once("old", "server/discover", [
    { message: '{"id":$ID,"result":{"supportedVersions":["2025-11-25"],"capabilities":{"tools":{}}}}' },
  ]);
  for (const transport of ["stdio", "http"] as const) {
    await withServers(
      [
        [transport, script],
        ["stdio", GOOD],
      ],
      PATIENT,
      async (_client, url) => {
        const { message } = await modernPost(url, "tools/list");
        assert.deepEqual(
          message.result.tools.map((tool: { name: string }) => tool.name),
          ["old_echo", "good_echo"],
        );
        const called = await modernPost(url, "tools/call", { name: "old_echo", arguments: {} });
        assert.equal(called.message.result.content[0].text, "echo of old");
      },
    );
  }
});

for (const transport of ["stdio", "sse"] as const) {
  test(`a server over ${transport} that sends a request instead of its tool list does not delay calls to others`, async () => {
    const question = { message: '{"jsonrpc":"2.0","id":"q","method":"roots/list"}' };
    await withServers(
      [
        [transport, once("bad", "tools/list", [question])],
        ["stdio", GOOD],
      ],
      { requestTimeout: "10s", prefixMode: "never" },
      async (client) => {
        await client.initialize();
        assert.equal((await client.call("echo")).result.content[0].text, "echo of good");
      },
    );
  });
}

test("without prefixes, a modern client reaches modern servers: lists are read with its envelope", async () => {
  const strict = [{ message: '{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"no envelope"}}' }];
  for (const transport of ["stdio", "http"] as const) {
    const one: Script = { name: "one", era: "modern", steps: {}, withoutEnvelope: strict };
    const two: Script = { name: "two", era: "modern", steps: {}, withoutEnvelope: strict };
    await withServers(
      [
        [transport, one],
        [transport, two],
      ],
      { ...PATIENT, prefixMode: "never" },
      async (_client, url) => {
        const { message } = await modernPost(url, "tools/call", { name: "echo", arguments: {} });
        assert.equal(message.result?.content[0].text, "echo of one", message.error?.message);
      },
    );
  }
});
