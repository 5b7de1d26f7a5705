import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { LEGACY_HEADERS, type RawClient } from "../../test/support/mcp/client.ts";
import { openOdd, serveOdd, stateOf, toolCall } from "../../test/support/mcp/odd-session.ts";
import type { ServedBackend } from "../../test/support/mcp/serve-backend.ts";

let served: ServedBackend;
before(async () => {
  served = await serveOdd();
});
after(() => served.close());

const open = (capabilities: object = {}): Promise<RawClient> => openOdd(served, capabilities);

test("progress goes to the stream of its request, with the client's token", async () => {
  const client = await open();
  const [a, b] = await Promise.all([
    client.post(toolCall("slow", { ms: 30, steps: 3 }, 1, { progressToken: "same" })),
    client.post(toolCall("slow", { ms: 30, steps: 2 }, 2, { progressToken: "same" })),
  ]);
  assert.deepEqual(
    a.messages.map((message) => message.params?.progress ?? message.id),
    [1, 2, 3, 1],
  );
  assert.deepEqual(
    b.messages.map((message) => message.params?.progress ?? message.id),
    [1, 2, 2],
  );
  for (const message of [...a.messages, ...b.messages])
    if (message.params) assert.equal(message.params.progressToken, "same");
  await client.delete();
});

test("a log message comes on the stream of the only request in flight", async () => {
  const client = await open();
  const { messages } = await client.post(toolCall("log", { message: "deep in thought" }));
  assert.deepEqual(
    messages.map((message) => message.params?.data ?? message.result.content[0].text),
    ["deep in thought", "logged"],
  );
  await client.delete();
});

test("what belongs to no request comes on the general stream, also if it came before", async () => {
  const client = await open();
  await client.call("notify", { method: "notifications/tools/list_changed", params: { early: true }, afterMs: 0 });
  const stream = await client.listen();
  assert.equal(stream.status, 200);
  assert.deepEqual((await stream.next()).message, {
    jsonrpc: "2.0",
    method: "notifications/tools/list_changed",
    params: { early: true },
  });
  await client.call("notify", { method: "notifications/resources/updated", params: { uri: "x://1" } });
  assert.equal((await stream.next()).message.params.uri, "x://1");
  await client.delete();
  await stream.ended;
});

for (const method of ["sampling/createMessage", "elicitation/create", "roots/list"]) {
  test(`a server's ${method} reaches the client and its answer the server`, async () => {
    const client = await open({ sampling: {}, elicitation: {}, roots: {} });
    const stream = await client.stream(toolCall("ask", { method, params: { n: 9 } }));
    const { message: question } = await stream.next((message) => message.method === method);
    assert.deepEqual(question.params, { n: 9 });
    const answered = await client.post({ jsonrpc: "2.0", id: question.id, result: { given: [1, "é"] } });
    assert.equal(answered.status, 202);
    const { message } = await stream.next((one) => one.id === 1);
    assert.deepEqual(JSON.parse(message.result.content[0].text), { given: [1, "é"] });
    await client.delete();
  });
}

test("a client's error response reaches the server, and a duplicate response is dropped", async () => {
  const client = await open();
  const stream = await client.stream(toolCall("ask", {}));
  const { message: question } = await stream.next((message) => message.method !== undefined);
  const refusal = { jsonrpc: "2.0", id: question.id, error: { code: -1, message: "no" } };
  assert.equal((await client.post(refusal)).status, 202);
  assert.equal((await client.post(refusal)).status, 202);
  assert.equal((await client.post({ jsonrpc: "2.0", id: 4711, result: {} })).status, 202);
  const { message } = await stream.next((one) => one.id === 1);
  assert.deepEqual(JSON.parse(message.result.content[0].text), { code: -1, message: "no" });
  await client.delete();
});

test("a question that the server takes back is taken back from the client", async () => {
  const client = await open({ sampling: {} });
  const { messages } = await client.post(toolCall("withdraw", {}));
  const [question, cancelled] = messages;
  assert.equal(question.method, "sampling/createMessage");
  assert.deepEqual(cancelled, {
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId: question.id, reason: "changed my mind" },
  });
  assert.equal((await client.post({ jsonrpc: "2.0", id: question.id, result: {} })).status, 202);
  await client.delete();
});

test("questions during several calls go to the general stream, each with its own id", async () => {
  const client = await open();
  const general = await client.listen();
  const calls = [1, 2, 3].map((id) => client.post(toolCall("ask", { params: { n: id } }, id)));
  for (let i = 0; i < 3; i++) {
    const { message } = await general.next((one) => one.method === "sampling/createMessage");
    await client.post({ jsonrpc: "2.0", id: message.id, result: { n: message.params.n } });
  }
  for (const [i, answer] of (await Promise.all(calls)).entries())
    assert.deepEqual(JSON.parse(answer.message.result.content[0].text), { n: i + 1 });
  await client.delete();
});

test("a canceled request gets no response, and the server gets the cancellation with its own id", async () => {
  const client = await open();
  const stream = await client.stream(toolCall("silent", {}, "mine"));
  await eventually("its stream has begun", () => stream.events.length > 0);
  await client.post({
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId: "mine", reason: "bored" },
  });
  await stream.ended;
  assert.equal((await client.listen({ "last-event-id": stream.events[0]?.id ?? "" })).status, 405);
  assert.equal(stream.events.filter((event) => event.data !== "").length, 0);
  const { cancelled } = await stateOf(client);
  assert.equal(cancelled.length, 1);
  assert.equal(typeof cancelled[0], "number");
  await client.delete();
});

test("a client cannot cancel the request of another session [A15]", async () => {
  const [a, b] = await Promise.all([open(), open()]);
  const running = a.post(toolCall("slow", { ms: 50 }, 77));
  await b.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 77 } });
  assert.equal((await running).message.result.content[0].text, "slow ");
  assert.deepEqual((await stateOf(a)).cancelled, []);
  await Promise.all([a.delete(), b.delete()]);
});

test("several general streams stay open: the newest gets events, and another takes over when it closes", async () => {
  const client = await open();
  const streams = [await client.listen(), await client.listen(), await client.listen(), await client.listen()];
  const [first, second, third, fourth] = streams;
  assert.ok(first && second && third && fourth);
  const tell = (method: string) => client.call("notify", { method });
  await tell("notifications/one");
  await fourth.next((message) => message.method === "notifications/one");
  const fifth = await client.listen();
  assert.equal(fifth.status, 409);
  assert.equal(fifth.headers.get("retry-after"), "30");
  // One that waits leaves: nothing changes. The one that hears leaves: the next newest hears.
  second.close();
  await second.ended;
  fourth.close();
  await fourth.ended;
  await eventually("the end is known", async () => {
    await tell("notifications/two");
    return third.events.some(({ data }) => data.includes("two"));
  });
  assert.ok(!first.events.some(({ data }) => data !== ""), "each message goes to one stream");
  await client.delete();
  await Promise.all([first.ended, third.ended]);
});

test("two connections to one response do not end each other, and both can get the response", async () => {
  const client = await open({ sampling: {} });
  const post = await client.stream(toolCall("ask", {}, 9));
  const { message: question, event } = await post.next((message) => message.method !== undefined);
  const resume = () => client.listen({ "last-event-id": event.id ?? "" });
  const [one, other] = [await resume(), await resume()];
  await post.ended;
  await client.post({ jsonrpc: "2.0", id: question.id, result: { n: 1 } });
  await other.next((message) => message.id === 9);
  await Promise.all([one.ended, other.ended]);
  const again = await client.listen({ "last-event-id": one.events.at(-1)?.id ?? "" });
  assert.deepEqual(JSON.parse((await again.next((message) => message.id === 9)).message.result.content[0].text), {
    n: 1,
  });
  await again.ended;
  await client.delete();
});

test("ten megabytes pass, and a slow reader gets all of them", async () => {
  const client = await open();
  const answer = await client.call("big", { bytes: 9_000_000 });
  assert.equal(answer.result.content[0].text.length, 9_000_000);
  await client.delete();
});

test("a client that does not read makes the server wait, and misses nothing [P5]", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-flood-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const mark = join(folder, "mark");
  const client = await open();
  const body = JSON.stringify(toolCall("flood", { count: 400, bytes: 50_000, mark }, 1, { progressToken: "p" }));
  const headers = {
    ...LEGACY_HEADERS,
    "mcp-session-id": client.sessionId ?? "",
    "content-length": String(Buffer.byteLength(body)),
  };
  const response = await new Promise<IncomingMessage>((resolve) => {
    request(served.url, { method: "POST", headers }, resolve).end(body);
  });
  response.pause();
  // Nobody reads, while another session moves megabytes through the same gateway.
  const other = await open();
  for (let i = 0; i < 3; i++) await other.call("big", { bytes: 9_000_000 });
  await other.delete();
  assert.ok(Number(readFileSync(mark, "utf8")) < 400, "the server waits");
  let received = "";
  for await (const chunk of response.setEncoding("utf8")) received += chunk as string;
  const numbers = [...received.matchAll(/"progress":(\d+)/g)].map((match) => Number(match[1]));
  assert.deepEqual(
    numbers,
    Array.from({ length: 400 }, (_, i) => i + 1),
  );
  assert.ok(received.includes('"flooded"'));
  await client.delete();
});

test("a client that leaves in the middle of a call in a session does not cancel it [R15]", async () => {
  const client = await open();
  const stream = await client.stream(toolCall("slow", { ms: 250, steps: 1 }, 8));
  stream.close();
  await stream.ended;
  await client.call("slow", { ms: 300 });
  assert.deepEqual((await stateOf(client)).cancelled, []);
  await client.delete();
});

test("the end of a session ends its streams and fails calls in flight", async () => {
  const client = await open();
  const general = await client.listen();
  const running = client.post(toolCall("silent", {}, 3));
  await new Promise((resolve) => setImmediate(resolve));
  await client.call("echo");
  await client.delete();
  const { message } = await running;
  assert.equal(message.id, 3);
  assert.match(message.error.message, /session ended/);
  await general.ended;
});
