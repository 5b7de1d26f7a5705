/**
 * Requests of servers that a client with a session does not answer.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { type FakeClock, fakeClock } from "../../test/support/fake-clock.ts";
import { type OpenStream, type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { openOdd, serveOdd, toolCall } from "../../test/support/mcp/odd-session.ts";
import { startScripted } from "../../test/support/mcp/scripted-server.ts";
import { serveMcp } from "../../test/support/mcp/serve-backend.ts";

const HOUR_MS = 3_600_000;
const QUESTION = { method: "elicitation/create", params: { message: "Which?", requestedSchema: { type: "object" } } };
const INPUT_REQUIRED = { resultType: "input_required", inputRequests: { a: QUESTION, b: QUESTION }, requestState: "s" };
const isQuestion = ({ method }: { readonly method?: string }): boolean => method === "elicitation/create";

/** Calls a tool of a 2026-07-28 server that asks two questions. */
async function callModern(t: TestContext, clock: FakeClock): Promise<{ client: RawClient; stream: OpenStream }> {
  const message = JSON.stringify({ jsonrpc: "2.0", id: 0, result: INPUT_REQUIRED }).replace('"id":0', '"id":$ID');
  const steps = { "tools/call": [[{ message }]] };
  const server = await startScripted("http", { name: "modern", era: "modern", steps });
  t.after(() => server.close());
  const served = await serveMcp({ targets: [server.target] }, { clock });
  t.after(() => served.close());
  const client = rawClient(served.url);
  await client.initialize({ capabilities: { elicitation: {} } });
  return { client, stream: await client.stream(toolCall("echo", {}, "mine")) };
}

test("a call of a 2026-07-28 server fails if the client does not answer its questions", async (t) => {
  const clock = fakeClock();
  const { client, stream } = await callModern(t, clock);
  const asked = [await stream.next(isQuestion), await stream.next(isQuestion)].map(({ message }) => message.id);
  await clock.advance(HOUR_MS - 5_000);
  assert.equal(stream.events.filter(({ data }) => data !== "").length, 2);
  await clock.advance(10_000);
  await eventually("the call is over", () => stream.events.length >= 5);
  const [canceled, alsoCanceled, answer] = stream.events.slice(-3).map(({ data }) => JSON.parse(data));
  assert.deepEqual(canceled.params, { requestId: asked[0], reason: "timeout" });
  assert.deepEqual(alsoCanceled.params, { requestId: asked[1] });
  assert.deepEqual(answer, {
    jsonrpc: "2.0",
    id: "mine",
    error: { code: -32603, message: "The client did not respond within 3600 s" },
  });
  assert.equal(await client.delete(), 204);
});

test("the cancellation of a call cancels its questions to the client", async (t) => {
  const { client, stream } = await callModern(t, fakeClock());
  const asked = [await stream.next(isQuestion), await stream.next(isQuestion)].map(({ message }) => message.id);
  await client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "mine" } });
  await eventually("the questions are canceled", () => stream.events.length >= 4);
  const canceled = stream.events.slice(-2).map(({ data }) => JSON.parse(data).params.requestId);
  assert.deepEqual(canceled, asked);
});

test("a question that the client does not answer does not pause the timeout of later calls", async (t) => {
  const clock = fakeClock();
  const served = await serveOdd(clock);
  t.after(() => served.close());
  const client = await openOdd(served, { elicitation: {} });
  const asking = await client.stream(toolCall("ask", { method: "elicitation/create" }, "asking"));
  const { message } = await asking.next(isQuestion);
  await clock.advance(HOUR_MS + 10_000);
  await eventually("the call is over", () => asking.events.length >= 3);
  assert.equal(JSON.parse(asking.events[1]?.data ?? "{}").params?.requestId, message.id);
  let hasHead = false;
  const opening = client.stream(toolCall("silent", {}, "silent")).finally(() => {
    hasHead = true;
  });
  await eventually("the head of the response is sent", async () => {
    await clock.advance(100);
    return hasHead;
  });
  await clock.advance(400_000);
  const silent = await opening;
  await eventually("the call is over", () => silent.events.some(({ data }) => data !== ""));
  const answer = JSON.parse(silent.events.at(-1)?.data ?? "{}");
  assert.match(answer.error.message, /did not respond within/);
});
