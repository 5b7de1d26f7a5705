/**
 * The end of a session at a server: messages that were sent before it reach the server.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { MessagePool } from "../../base/memory-budget.ts";
import { HeaderList } from "../../http/headers.ts";
import { HttpChannel } from "./http-transport.ts";
import { OneWayLimits, type OneWayMessage, OneWayQueue } from "./one-way-queue.ts";
import type { RemoteHandler, RemoteRequest, RemoteServer } from "./remote-server.ts";

const CANCELLATION = { text: "{}", method: "notifications/cancelled" };

/** A channel with a session, a call, and its cancellation on their way. */
function setUp() {
  const clock = fakeClock();
  const sent: { readonly method: string; readonly handler: RemoteHandler; isAborted: boolean }[] = [];
  const memory = new MessagePool(2 ** 24, clock).server();
  const server = {
    address: "a:1",
    oneWayQueue: (_kind: string, start: (queued: OneWayMessage) => void) =>
      new OneWayQueue(new OneWayLimits(), memory, start),
    requiredLogin: () => undefined,
    send({ method }: RemoteRequest, handler: RemoteHandler) {
      const request = { method, handler, isAborted: false };
      sent.push(request);
      return { abort: () => void Object.assign(request, { isAborted: true }), resume: () => undefined };
    },
  } as unknown as RemoteServer;
  const ignore = (): void => undefined;
  const channel = new HttpChannel(server, clock, { message: ignore, failed: ignore, expired: ignore, closed: ignore });
  channel.send({ text: "{}", wireId: 1, method: "initialize" });
  sent[0]?.handler.head(200, HeaderList.of({ "mcp-session-id": "s" }));
  channel.send({ text: "{}", wireId: 2, method: "tools/call" });
  channel.send(CANCELLATION);
  return { clock, sent, channel };
}

test("a cancellation reaches the server before its session ends", async () => {
  const { sent, channel } = setUp();
  const closed = channel.close();
  await new Promise(setImmediate);
  assert.deepEqual(
    sent.map(({ method, isAborted }) => [method, isAborted]),
    [
      ["POST", true],
      ["POST", true],
      ["POST", false],
    ],
  );
  sent[2]?.handler.end();
  await new Promise(setImmediate);
  assert.deepEqual([sent[3]?.method, sent[2]?.isAborted], ["DELETE", false]);
  sent[3]?.handler.end();
  await closed;
});

test("a server that does not accept a cancellation delays the end of its session by a second", async () => {
  const { clock, sent, channel } = setUp();
  const closed = channel.close();
  await clock.advance(999);
  assert.equal(sent.length, 3);
  await clock.advance(1);
  assert.deepEqual([sent[2]?.isAborted, sent[3]?.method], [true, "DELETE"]);
  await clock.advance(1_000);
  await closed;
  assert.equal(clock.pending(), 0);
});

test("a session without messages on their way ends at once, and one that the server has dropped does not end again", async () => {
  const { sent, channel } = setUp();
  sent[2]?.handler.head(404, HeaderList.of({}));
  sent[2]?.handler.body("");
  await channel.close();
  assert.equal(sent.length, 3);

  const other = setUp();
  other.sent[2]?.handler.end();
  void other.channel.close();
  assert.equal(other.sent[3]?.method, "DELETE");
});

test("cancellations that wait for their turn are sent before the session ends", async () => {
  const { sent, channel } = setUp();
  for (let i = 0; i < 40; i++) channel.send(CANCELLATION);
  assert.equal(sent.length, 2 + 16);
  const closed = channel.close();
  for (let i = 2; i < 2 + 41; i++) {
    assert.equal(sent[i]?.method, "POST");
    sent[i]?.handler.end();
  }
  await new Promise(setImmediate);
  assert.deepEqual([sent.length, sent[43]?.method], [44, "DELETE"]);
  sent[43]?.handler.end();
  await closed;
});
