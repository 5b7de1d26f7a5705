/**
 * Answers that a client comes back for: event ids, and streams that are opened again.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { openOdd, serveOdd, stateOf, toolCall } from "../../test/support/mcp/odd-session.ts";
import { patientClock } from "../../test/support/mcp/patient-clock.ts";
import type { ServedBackend } from "../../test/support/mcp/serve-backend.ts";

let served: ServedBackend;
before(async () => {
  served = await serveOdd();
});
after(() => served.close());

const open = (capabilities: object = {}): Promise<RawClient> => openOdd(served, capabilities);

test("a slow response primes its stream with an event id", async () => {
  const client = await open();
  const { events } = await client.post(toolCall("slow", { ms: 400, steps: 1 }));
  assert.equal(events.length, 2);
  assert.equal(events[0]?.data, "");
  assert.match(events[0]?.id ?? "", /^\d+-1-n\d+$/);
  assert.equal(events[0]?.retry, 1000);
  assert.match(events[1]?.id ?? "", /^\d+-2e-n\d+$/);
  // Nothing is left: an empty stream would be asked for again.
  const { status, ended } = await client.listen({ "last-event-id": events[1]?.id ?? "" });
  assert.equal(status, 405);
  await ended;
  await client.delete();
});

test("an immediate response has no event id, because it cannot be resumed", async (t) => {
  // Without the heartbeat that primes slow responses, every response is immediate, however busy the machine is.
  const immediate = await serveOdd({ ...patientClock, every: () => ({ cancel: () => undefined }) });
  t.after(() => immediate.close());
  const client = await openOdd(immediate);
  for (const tool of ["echo", "nothing"])
    assert.deepEqual(
      (await client.post(toolCall(tool, {}))).events.map(({ id }) => id),
      [undefined],
    );
  await client.delete();
});

test("a client of an older revision is not sent an event without data", async () => {
  const client = rawClient(served.url);
  client.version = "2025-06-18";
  await client.initialize();
  const { events } = await client.post(toolCall("slow", { ms: 300, steps: 1 }));
  assert.deepEqual(
    events.map((event) => event.data === ""),
    [false],
  );
  await client.delete();
});

test("a client resumes a response after a dropped connection", async () => {
  const client = await open();
  const stream = await client.stream(toolCall("slow", { ms: 400, steps: 4 }, 5, { progressToken: 9 }));
  const { event } = await stream.next((message) => message.params?.progress === 1);
  stream.close();
  await stream.ended;
  const resumed = await client.listen({ "last-event-id": event.id ?? "" });
  assert.equal(resumed.status, 200);
  const { message } = await resumed.next((one) => one.id === 5);
  assert.equal(message.result.content[0].text, "slow ");
  await resumed.ended;
  const progress = resumed.events.filter((one) => one.data.includes("progress"));
  assert.deepEqual(
    progress.map((one) => JSON.parse(one.data).params.progress),
    [2, 3, 4],
  );
  assert.deepEqual((await stateOf(client)).cancelled, []);
  await client.delete();
});

test("a response is kept while no client is connected", async () => {
  const client = await open();
  const stream = await client.stream(toolCall("slow", { ms: 250, steps: 2 }, 6, { progressToken: 1 }));
  const { event } = await stream.next((message) => message.params?.progress === 1);
  stream.close();
  await stream.ended;
  await client.call("slow", { ms: 300 });
  const resumed = await client.listen({ "last-event-id": event.id ?? "" });
  assert.equal((await resumed.next((one) => one.id === 6)).message.result.content[0].text, "slow ");
  await resumed.ended;
  await client.delete();
});

for (const lastEventId of ["nonsense", "999-1", "0-0"]) {
  test(`an event id that means nothing (${lastEventId}) opens the general stream`, async () => {
    const client = await open();
    const stream = await client.listen({ "last-event-id": lastEventId });
    await client.call("notify", { method: "notifications/y" });
    assert.equal((await stream.next()).message.method, "notifications/y");
    await client.delete();
  });
}

test("events of another session cannot be resumed", async () => {
  const [a, b] = await Promise.all([open(), open()]);
  await a.post(toolCall("slow", { ms: 300, steps: 1, message: "secret of a" }));
  const stream = await b.listen({ "last-event-id": "1-0" });
  await b.call("notify", { method: "notifications/z" });
  await stream.next((message) => message.method === "notifications/z");
  assert.ok(!stream.events.some((event) => event.data.includes("secret of a")));
  await Promise.all([a.delete(), b.delete()]);
});
