import assert from "node:assert/strict";
import { test } from "node:test";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

const odd = (name: string, ...flags: string[]) => ({
  name,
  stdio: stdioFixture("odd-server", `--name=${name}`, ...flags),
});
const broken = { name: "broken", stdio: { cmd: "/nonexistent/server" } };

async function withTargets(
  config: object,
  run: (client: RawClient, served: ServedBackend) => Promise<void>,
): Promise<void> {
  const served = await serveMcp(config);
  const client = rawClient(served.url);
  try {
    await run(client, served);
  } finally {
    await served.close();
  }
}

test("several servers look like one", async () => {
  await withTargets({ targets: [odd("a", "--version=2025-06-18"), odd("b")] }, async (client) => {
    const { message } = await client.initialize();
    assert.equal(message.id, "init");
    assert.equal(message.result.protocolVersion, "2025-06-18");
    assert.equal(message.result.serverInfo.name, "gateway");
    assert.equal(message.result.instructions, "[a]\nUse a wisely.\n\n[b]\nUse b wisely.");
    assert.deepEqual(message.result.capabilities.tools, { listChanged: true });
    const { result } = await client.request("tools/list");
    const names = result.tools.map((tool: { name: string }) => tool.name);
    assert.equal(names.length, 26);
    assert.deepEqual(names.slice(0, 2), ["a_echo", "a_slow"]);
    assert.deepEqual(names.slice(13, 15), ["b_echo", "b_slow"]);
    assert.deepEqual(
      (await client.request("resources/list")).result.resources.map((one: { uri: string }) => one.uri),
      ["a+test://a/a", "a+test://a/b", "b+test://b/a", "b+test://b/b"],
    );
    assert.deepEqual(
      (await client.request("resources/templates/list")).result.resourceTemplates.map(
        (one: { uriTemplate: string }) => one.uriTemplate,
      ),
      ["a+test://a/{id}", "b+test://b/{id}"],
    );
  });
});

test("calls go to the target in the name, and results have the client's names", async () => {
  await withTargets({ targets: [odd("a"), odd("b")] }, async (client, served) => {
    await client.initialize();
    assert.equal(JSON.parse((await client.call("b_state")).result.content[0].text).name, "b");
    assert.deepEqual(served.last?.attributes.mcp?.tool, { name: "state", target: "b" });
    assert.equal(
      (await client.request("prompts/get", { name: "a_greeting" })).result.messages[0].content.text,
      "greeting from a",
    );
    const read = await client.request("resources/read", { uri: "b+test://b/a" });
    assert.deepEqual(read.result.contents, [{ uri: "b+test://b/a", text: "test://b/a from b" }]);
    assert.deepEqual(
      (
        await client.request("completion/complete", {
          ref: { type: "ref/prompt", name: "b_greeting" },
          argument: { name: "x", value: "" },
        })
      ).result.completion.values,
      ["b"],
    );
    const slow = await client.post({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name: "a_slow", arguments: { steps: 2 }, _meta: { progressToken: "t" } },
    });
    assert.deepEqual(
      slow.messages.map((message) => message.params?.progressToken ?? message.id),
      ["t", "t", 1],
    );
  });
});

const unknown = [
  { method: "tools/call", params: { name: "nobody_echo" }, message: "Unknown tool: nobody_echo" },
  { method: "tools/call", params: { name: "echo" }, message: "Unknown tool: echo" },
  { method: "prompts/get", params: { name: "x" }, message: "Unknown prompt: x" },
  { method: "resources/read", params: { uri: "test://a/a" }, message: "Unknown resource: test://a/a" },
];
test("names that belong to no target are unknown", async () => {
  await withTargets({ targets: [odd("a"), odd("b")] }, async (client) => {
    await client.initialize();
    for (const { method, params, message } of unknown)
      assert.deepEqual((await client.request(method, params)).error, { code: -32602, message });
    assert.equal((await client.request("some/method")).error.code, -32601);
    assert.deepEqual((await client.request("ping")).result, {});
  });
});

test("pages of several lists are turned together, to the last", async () => {
  await withTargets({ targets: [odd("a", "--page=5"), odd("b", "--page=9"), odd("c")] }, async (client) => {
    await client.initialize();
    const all: string[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const { result } = await client.request("tools/list", cursor === undefined ? {} : { cursor });
      all.push(...result.tools.map((tool: { name: string }) => tool.name));
      cursor = result.nextCursor;
      pages += 1;
    } while (cursor !== undefined);
    assert.equal(pages, 3);
    assert.equal(all.length, 39);
    assert.equal(new Set(all).size, 39);
    assert.equal((await client.request("tools/list", { cursor: "made up" })).error.code, -32602);
  });
});

test("a single target keeps its own cursors", async () => {
  await withTargets({ targets: [odd("a", "--page=5")] }, async (client) => {
    await client.initialize();
    const { result } = await client.request("tools/list");
    assert.equal(result.nextCursor, "5");
    assert.equal((await client.request("tools/list", { cursor: "5" })).result.tools[0].name, "big");
  });
});

test("what concerns all goes to all", async () => {
  await withTargets({ targets: [odd("a"), odd("b")] }, async (client) => {
    await client.initialize();
    assert.deepEqual((await client.request("logging/setLevel", { level: "error" })).result, {});
    await client.post({ jsonrpc: "2.0", method: "notifications/roots/list_changed" });
    for (const target of ["a", "b"]) {
      const { logLevel, seen, initializedCount } = JSON.parse(
        (await client.call(`${target}_state`)).result.content[0].text,
      );
      assert.equal(logLevel, "error");
      assert.ok(seen.includes("notifications/roots/list_changed"));
      assert.equal(initializedCount, 1);
    }
  });
});

test("servers that send requests with equal ids each get their own response", async () => {
  await withTargets({ targets: [odd("a"), odd("b")] }, async (client) => {
    await client.initialize({ capabilities: { sampling: {} } });
    const streams = await Promise.all(
      ["a", "b"].map((name) =>
        client.stream({
          jsonrpc: "2.0",
          id: name,
          method: "tools/call",
          params: { name: `${name}_ask`, arguments: { params: { from: name } } },
        }),
      ),
    );
    for (const stream of streams) {
      const { message } = await stream.next((one) => one.method === "sampling/createMessage");
      await client.post({ jsonrpc: "2.0", id: message.id, result: { answer: message.params.from } });
    }
    for (const [i, stream] of streams.entries()) {
      const { message } = await stream.next((one) => one.result);
      assert.deepEqual(JSON.parse(message.result.content[0].text), { answer: "ab"[i] });
    }
  });
});

test("news of a resource comes under the client's name", async () => {
  await withTargets({ targets: [odd("a"), odd("b")] }, async (client) => {
    await client.initialize();
    const general = await client.listen();
    await client.request("resources/subscribe", { uri: "b+test://b/a" });
    assert.deepEqual(JSON.parse((await client.call("b_state")).result.content[0].text).subscribed, ["test://b/a"]);
    await client.call("b_notify", { method: "notifications/resources/updated", params: { uri: "test://b/a" } });
    assert.equal((await general.next()).message.params.uri, "b+test://b/a");
  });
});

test("one failing target leaves the rest working, and is named [R7]", async () => {
  await withTargets({ targets: [odd("a"), broken, odd("c")] }, async (client) => {
    const { status, message } = await client.initialize();
    assert.equal(status, 200);
    assert.match(message.result.instructions, /\[broken\]\nNot available: could not be started/);
    assert.match(message.result._meta["gateway.internal/failedTargets"].broken, /ENOENT/);
    const { result } = await client.request("tools/list");
    assert.equal(result.tools.length, 26);
    assert.ok(result._meta["gateway.internal/failedTargets"].broken);
    assert.equal((await client.call("c_echo", { message: "hi" })).result.content[0].text, "hi");
    assert.match((await client.call("broken_x")).error.message, /target "broken" could not be started/);
  });
});

test("one failing target fails the request with failClosed", async () => {
  await withTargets({ targets: [odd("a"), broken], failureMode: "failClosed" }, async (client, served) => {
    const { status, message } = await client.initialize();
    assert.equal(status, 200);
    assert.match(message.error.message, /target "broken" could not be started/);
    assert.equal(served.hub.sessions.size, 0);
  });
});

test("all targets failing is an error that names each", async () => {
  await withTargets({ targets: [broken, { ...broken, name: "other" }] }, async (client) => {
    const { status, message } = await client.initialize();
    assert.equal(status, 200);
    assert.match(message.error.message, /target "broken".*target "other"/);
  });
});

test("a target that crashes fails its own calls only, and comes back", async () => {
  await withTargets({ targets: [odd("a"), odd("b")] }, async (client) => {
    await client.initialize();
    const [crashed, fine] = await Promise.all([
      client.call("a_crash"),
      client.call("b_slow", { ms: 60, message: "x" }),
    ]);
    assert.match(crashed.error.message, /target "a" was terminated by SIGKILL/);
    assert.equal(fine.result.content[0].text, "slow x");
    assert.equal(JSON.parse((await client.call("a_state")).result.content[0].text).name, "a");
    assert.equal((await client.request("tools/list")).result.tools.length, 26);
  });
});

test("names have no prefix with prefixMode never: the first target with a name owns it", async () => {
  await withTargets({ targets: [odd("a"), odd("b")], prefixMode: "never" }, async (client) => {
    await client.initialize();
    assert.equal((await client.request("tools/list")).result.tools.length, 13);
    assert.equal(JSON.parse((await client.call("state")).result.content[0].text).name, "a");
    assert.equal((await client.request("resources/read", { uri: "test://b/a" })).result.contents[0].uri, "test://b/a");
    assert.deepEqual((await client.call("nothing")).error, { code: -32602, message: "Unknown tool: nothing" });
  });
});

test("names of a single target have a prefix with prefixMode always", async () => {
  await withTargets({ targets: [odd("a")], prefixMode: "always" }, async (client) => {
    await client.initialize();
    assert.equal((await client.request("tools/list")).result.tools[0].name, "a_echo");
    assert.equal((await client.call("a_echo", { message: "x" })).result.content[0].text, "x");
  });
});

const allowed = new Set(["tool a echo", "tool b state", "resource b test://b/a"]);
const access = { allows: (kind: string, name: string, target: string) => allowed.has(`${kind} ${target} ${name}`) };

for (const targets of [[odd("a"), odd("b")], [odd("a")]]) {
  test(`with ${targets.length} targets, what may not be used is not listed and does not exist`, async () => {
    await withTargets({ targets }, async (client, served) => {
      const prefix = targets.length > 1 ? "a_" : "";
      await client.initialize();
      served.access = access;
      const listed = (await client.request("tools/list")).result.tools.map((tool: { name: string }) => tool.name);
      assert.deepEqual(listed, targets.length > 1 ? ["a_echo", "b_state"] : ["echo"]);
      assert.deepEqual((await client.request("prompts/list")).result.prompts, []);
      assert.equal((await client.call(`${prefix}echo`, { message: "ok" })).result.content[0].text, "ok");
      assert.deepEqual((await client.call(`${prefix}slow`)).error, {
        code: -32602,
        message: `Unknown tool: ${prefix}slow`,
      });
      assert.equal(
        (await client.request("prompts/get", { name: `${prefix}greeting` })).error.message,
        `Unknown prompt: ${prefix}greeting`,
      );
      const uri = targets.length > 1 ? "a+test://a/a" : "test://a/a";
      for (const method of ["resources/read", "resources/subscribe", "resources/unsubscribe"]) {
        assert.equal((await client.request(method, { uri })).error.message, `Unknown resource: ${uri}`);
      }
      if (targets.length > 1) assert.ok((await client.request("resources/read", { uri: "b+test://b/a" })).result);
    });
  });
}
