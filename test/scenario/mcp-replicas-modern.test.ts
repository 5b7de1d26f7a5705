/**
 * Two replicas and one Redis behind a load balancer that sends each message of a client anywhere: the calls of 2026
 * clients that go on at the other replica.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import type { Json } from "../support/mcp/client.ts";
import { oddTarget } from "../support/mcp/gateway-config.ts";
import { modernCall, modernPost, modernRequest } from "../support/mcp/modern-client.ts";
import { replicasFor } from "../support/mcp/replicas.ts";
import { skipWithoutRedis } from "../support/store/redis-server.ts";

const skip = skipWithoutRedis;

const SAMPLING = { capabilities: { sampling: {} } };
const ask = { name: "ask", arguments: {} };

function retry(message: Json, responses?: object): Record<string, unknown> {
  const { inputRequests, requestState } = message.result;
  const inputResponses =
    responses ?? Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { answer: "from the client" }]));
  return { ...ask, inputResponses, requestState };
}

test("2026: a retry with input comes to the other replica", { skip }, async (t) => {
  const { urls } = await replicasFor(t);
  const [here, there] = urls;
  const { message } = await modernPost(here, "tools/call", ask, SAMPLING);
  assert.equal(message.result.resultType, "input_required");
  // Without the input it is asked for again, under another state, which the first replica knows too.
  const again = (await modernPost(there, "tools/call", retry(message, {}), SAMPLING)).message;
  assert.equal(again.result.resultType, "input_required");
  const done = (await modernPost(there, "tools/call", retry(again), SAMPLING)).message;
  assert.match(done.result.content[0].text, /from the client/);
  for (const url of [here, there]) {
    const used = (await modernPost(url, "tools/call", retry(again), SAMPLING)).message;
    assert.match(used.error.message, /unknown or expired requestState/);
  }
});

test("2026: a retry that leaves cancels the call at the replica where it runs", { skip }, async (t) => {
  const { urls } = await replicasFor(t);
  const [here, there] = urls;
  const silent = { name: "ask-silent", arguments: {} };
  const { message } = await modernPost(here, "tools/call", silent, SAMPLING);
  const params = { ...retry(message), ...silent };
  const { body, headers } = modernRequest("tools/call", params, SAMPLING);
  const abort = new AbortController();
  const left = fetch(there, { method: "POST", body, headers, signal: abort.signal });
  const state = async () => JSON.parse(await modernCall(here, "state", {}, SAMPLING));
  await eventually("taken up", async () => (await state()).seen.includes("the client's input"));
  abort.abort();
  await assert.rejects(left);
  await eventually("cancelled", async () => (await state()).cancelled.length === 1);
});

test("2026: the state of another user is unknown at both replicas", { skip }, async (t) => {
  const keys = { apiKey: { keys: [{ key: "key-of-alice-1" }, { key: "key-of-carol-2" }] } };
  const { urls } = await replicasFor(t, [oddTarget()], { policies: keys });
  const as = (key: string) => ({ ...SAMPLING, headers: { authorization: `Bearer ${key}` } });
  const { message } = await modernPost(urls[0], "tools/call", ask, as("key-of-alice-1"));
  for (const url of urls) {
    const stolen = (await modernPost(url, "tools/call", retry(message), as("key-of-carol-2"))).message;
    assert.match(stolen.error.message, /unknown or expired requestState/);
  }
  const own = (await modernPost(urls[1], "tools/call", retry(message), as("key-of-alice-1"))).message;
  assert.match(own.result.content[0].text, /from the client/);
});
