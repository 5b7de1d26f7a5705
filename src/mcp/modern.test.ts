import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { modernCall, modernPost, modernStream } from "../../test/support/mcp/modern-client.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

// A legacy server behind modern clients: what the conformance suite cannot see is tested here.
let served: ServedBackend;
before(async () => {
  served = await serveMcp({ targets: [{ name: "odd", stdio: stdioFixture("odd-server") }] });
});
after(() => served.close());

test("a legacy server is discovered as if it were modern", async () => {
  const { status, headers, message } = await modernPost(served.url, "server/discover", {}, { id: "d" });
  assert.equal(status, 200);
  assert.equal(headers.get("content-type"), "application/json");
  assert.equal(headers.get("mcp-session-id"), null);
  assert.equal(message.id, "d");
  assert.equal(message.result.resultType, "complete");
  assert.equal(message.result.supportedVersions[0], "2026-07-28");
  assert.deepEqual(message.result._meta["io.modelcontextprotocol/serverInfo"], {
    name: "odd",
    title: "The odd server",
    version: "1.2.3",
  });
  assert.ok(message.result.capabilities.tools);
  assert.equal(typeof message.result.ttlMs, "number");
});

test("requests lose their envelope, and results gain the fields of 2026-07-28", async () => {
  const { message } = await modernPost(served.url, "tools/list");
  assert.equal(message.result.resultType, "complete");
  assert.equal(message.result.ttlMs, 0);
  assert.equal(message.result.cacheScope, "private");
  assert.equal(message.result.tools.length, 13);
  assert.equal(await modernCall(served.url, "echo", { message: "hi" }), "hi");
});

test("progress makes the response a stream, without event ids", async () => {
  const { headers, events, messages } = await modernPost(
    served.url,
    "tools/call",
    { name: "slow", arguments: { steps: 2 } },
    { id: 4, meta: { progressToken: "t" } },
  );
  assert.equal(headers.get("content-type"), "text/event-stream");
  assert.deepEqual(
    messages.map((message) => message.params?.progressToken ?? message.id),
    ["t", "t", 4],
  );
  assert.ok(events.every((event) => event.id === undefined));
});

test("log messages are sent only for a request with a log level, from that level on", async () => {
  assert.equal((await modernPost(served.url, "tools/call", { name: "log" })).messages.length, 0);
  const loud = await modernPost(
    served.url,
    "tools/call",
    { name: "log" },
    { meta: { "io.modelcontextprotocol/logLevel": "debug" } },
  );
  assert.equal(loud.messages.length, 2);
  const quiet = await modernPost(
    served.url,
    "tools/call",
    { name: "log" },
    { meta: { "io.modelcontextprotocol/logLevel": "error" } },
  );
  assert.equal(quiet.messages.length, 0);
});

test("a request of the server becomes input_required, and the retry continues the same call", async () => {
  const options = { capabilities: { sampling: {} } };
  const args = { name: "ask", arguments: { params: { maxTokens: 5 } } };
  const first = await modernPost(served.url, "tools/call", args, options);
  assert.equal(first.message.result.resultType, "input_required");
  const [[key, request]] = Object.entries(first.message.result.inputRequests) as [
    [string, { method: string; params: object }],
  ];
  assert.deepEqual(request, { method: "sampling/createMessage", params: { maxTokens: 5 } });
  const { requestState } = first.message.result;
  const missing = await modernPost(
    served.url,
    "tools/call",
    { ...args, requestState, inputResponses: { other: {} } },
    options,
  );
  assert.equal(missing.message.result.resultType, "input_required");
  assert.notEqual(missing.message.result.requestState, requestState);
  const last = await modernPost(
    served.url,
    "tools/call",
    { ...args, requestState: missing.message.result.requestState, inputResponses: { [key]: { n: 9007 }, extra: 1 } },
    options,
  );
  assert.equal(last.message.result.resultType, "complete");
  assert.equal(last.message.result.content[0].text, '{"n":9007}');
  const again = await modernPost(served.url, "tools/call", { ...args, requestState }, options);
  assert.equal(again.message.error.code, -32602);
});

test("a retry continues its call after a reload changed the servers, and its process ends then", async (t) => {
  const own = await serveMcp({ targets: [{ name: "odd", stdio: stdioFixture("odd-server") }] });
  t.after(() => own.close());
  const options = { capabilities: { sampling: {} } };
  const args = { name: "ask", arguments: { params: { maxTokens: 5 } } };
  const { message } = await modernPost(own.url, "tools/call", args, options);
  own.hub.sessions.change({ targets: own.hub.targets, names: own.hub.names });
  const { requestState } = message.result;
  const retry = { ...args, requestState, inputResponses: { input_1: { n: 7 } } };
  const last = await modernPost(own.url, "tools/call", retry, options);
  assert.equal(last.message.result.content[0].text, '{"n":7}');
  await eventually("only the new process is left", () => own.hub.children === 1);
});

test("invented or foreign request state is rejected", async () => {
  const args = { name: "ask", arguments: {} };
  served.attributes = { jwt: { iss: "i", sub: "alice" } };
  const { message } = await modernPost(served.url, "tools/call", args, { capabilities: { sampling: {} } });
  served.attributes = { jwt: { iss: "i", sub: "bob" } };
  const stolen = await modernPost(
    served.url,
    "tools/call",
    { ...args, requestState: message.result.requestState, inputResponses: { input_1: {} } },
    { capabilities: { sampling: {} } },
  );
  assert.equal(stolen.message.error.code, -32602);
  served.attributes = { jwt: { iss: "i", sub: "alice" } };
  // A rule may have judged the name of the retry, not of the call that it takes up.
  const renamed = await modernPost(
    served.url,
    "tools/call",
    { ...args, name: "echo", requestState: message.result.requestState, inputResponses: { input_1: {} } },
    { capabilities: { sampling: {} } },
  );
  assert.equal(renamed.message.error.code, -32602);
  served.attributes = {};
  const madeUp = await modernPost(served.url, "tools/call", { ...args, requestState: "0".repeat(32) });
  assert.equal(madeUp.message.error.code, -32602);
});

test("a client without the capability gets no requests of servers", async () => {
  const { message } = await modernPost(
    served.url,
    "tools/call",
    { name: "ask", arguments: { method: "elicitation/create" } },
    { capabilities: { sampling: {} } },
  );
  assert.match(message.result.content[0].text, /cannot answer/);
});

test("closing the stream cancels the call at the server [R15]", async () => {
  const stream = await modernStream(
    served.url,
    "tools/call",
    { name: "slow", arguments: { ms: 60_000, steps: 6000 } },
    { meta: { progressToken: 1 } },
  );
  await stream.next();
  stream.close();
  await stream.ended;
  await eventually("the server has heard of it", async () => {
    const { cancelled } = JSON.parse(await modernCall(served.url, "state"));
    return cancelled.length > 0;
  });
});

test("a subscription is acknowledged and gets only the requested notifications", async () => {
  const stream = await modernStream(
    served.url,
    "subscriptions/listen",
    { notifications: { toolsListChanged: true, promptsListChanged: true, resourceSubscriptions: ["x://1"] } },
    { id: 9 },
  );
  const { message: ack } = await stream.next();
  assert.equal(ack.method, "notifications/subscriptions/acknowledged");
  assert.deepEqual(ack.params, {
    _meta: { "io.modelcontextprotocol/subscriptionId": 9 },
    notifications: { toolsListChanged: true, resourceSubscriptions: ["x://1"] },
  });
  assert.deepEqual(JSON.parse(await modernCall(served.url, "state")).subscribed, ["x://1"]);
  for (const [method, params] of [
    ["notifications/resources/updated", { uri: "x://2" }],
    ["notifications/prompts/list_changed", {}],
    ["notifications/resources/updated", { uri: "x://1" }],
    ["notifications/tools/list_changed", {}],
  ] as const) {
    await modernCall(served.url, "notify", { method, params, afterMs: 0 });
    await modernCall(served.url, "slow", { ms: 5 });
  }
  const { message: update } = await stream.next();
  assert.deepEqual(update.params, { _meta: { "io.modelcontextprotocol/subscriptionId": 9 }, uri: "x://1" });
  assert.equal((await stream.next()).message.method, "notifications/tools/list_changed");
  stream.close();
  await stream.ended;
  await eventually("the server has heard of the end", async () => {
    const { subscribed } = JSON.parse(await modernCall(served.url, "state"));
    return subscribed.length === 0;
  });
});

test("a subscription to nothing the server has ends at once", async () => {
  const { messages } = await modernPost(
    served.url,
    "subscriptions/listen",
    { notifications: { promptsListChanged: true } },
    { id: 3 },
  );
  assert.deepEqual(
    messages.map((message) => message.method ?? message.id),
    ["notifications/subscriptions/acknowledged", 3],
  );
  assert.equal(messages[1].result.resultType, "complete");
});

test("clients of one identity share a process, others have their own", async () => {
  const pid = async (sub: string | undefined) => {
    served.attributes = sub === undefined ? {} : { jwt: { iss: "i", sub } };
    return JSON.parse(await modernCall(served.url, "state")).pid as number;
  };
  const pids = [await pid("carol"), await pid("carol"), await pid("dave"), await pid(undefined)];
  served.attributes = {};
  assert.equal(pids[0], pids[1]);
  assert.equal(new Set(pids).size, 3);
});

test("a crash fails the call, and the next one finds a new process", async () => {
  const crashed = await modernPost(served.url, "tools/call", { name: "crash" });
  assert.equal(crashed.status, 200);
  assert.match(crashed.message.error.message, /SIGKILL/);
  assert.equal(await modernCall(served.url, "echo", { message: "back" }), "back");
});

test("clients of both eras are served at one URL", async () => {
  const legacy = rawClient(served.url);
  await legacy.initialize();
  const [old, modern] = await Promise.all([
    legacy.call("echo", { message: "old" }),
    modernCall(served.url, "echo", { message: "new" }),
  ]);
  assert.equal(old.result.content[0].text, "old");
  assert.equal(modern, "new");
  await legacy.delete();
});

test("what may not be used does not exist for modern clients either", async () => {
  served.access = { allows: (kind, name) => kind === "tool" && name === "echo" };
  const list = (await modernPost(served.url, "tools/list")).message.result.tools;
  assert.deepEqual(
    list.map((tool: { name: string }) => tool.name),
    ["echo"],
  );
  const { status, message } = await modernPost(served.url, "tools/call", { name: "state" });
  assert.equal(status, 200);
  assert.deepEqual(message.error, { code: -32602, message: "Unknown tool: state" });
  served.access = undefined;
});
