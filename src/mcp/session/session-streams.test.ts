import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryAccount, MemoryPool } from "../../base/memory-budget.ts";
import type { ResponseReceiver } from "../../core/backend.ts";
import { SessionStreams } from "./session-streams.ts";

function sink() {
  const state = { status: 0, text: "", isEnded: false };
  const call = {
    head: (status: number) => {
      state.status = status;
    },
    data: (chunk: Buffer) => {
      state.text += chunk.toString();
      return true;
    },
    end: () => {
      state.isEnded = true;
    },
    problem: () => undefined,
    fail: () => undefined,
    upgraded: () => undefined,
  } as unknown as ResponseReceiver;
  return { state, call };
}

function streamsAt(clock: { nowMs: number }): SessionStreams {
  const ignore = (): void => undefined;
  return new SessionStreams(
    {
      id: "s",
      get nowMs() {
        return clock.nowMs;
      },
      primesStreams: true,
      peers: { isShared: false, listening: ignore, notListening: ignore, deliver: async () => false },
      heartbeats: { startHeartbeat: ignore, stopHeartbeat: ignore },
      streamClosed: ignore,
      congested: ignore,
    },
    new MemoryAccount(new MemoryPool(1_000_000), "client"),
  );
}

test("a stream ends when the credential of its request has expired, and another takes over", () => {
  const clock = { nowMs: 1_000 };
  const streams = streamsAt(clock);
  const [lasting, expiring] = [sink(), sink()];
  streams.listen(lasting.call, undefined);
  streams.listen(expiring.call, undefined, 5_000);
  streams.sweep(5_999);
  streams.send('{"n":1}');
  assert.ok(expiring.state.text.includes('{"n":1}') && !expiring.state.isEnded);
  streams.sweep(6_000);
  assert.ok(expiring.state.isEnded);
  streams.send('{"n":2}');
  assert.ok(lasting.state.text.includes('{"n":2}') && !lasting.state.isEnded);
  assert.ok(!lasting.state.text.includes('{"n":1}'), "each message goes to one stream");
});

test("when all places are taken, an old stream makes room and young ones do not", () => {
  const clock = { nowMs: 0 };
  const streams = streamsAt(clock);
  const sinks = Array.from({ length: 4 }, sink);
  for (const { call } of sinks) streams.listen(call, undefined);
  const early = sink();
  streams.listen(early.call, undefined);
  assert.equal(early.state.status, 409);
  clock.nowMs = 30_000;
  const late = sink();
  streams.listen(late.call, undefined);
  assert.equal(late.state.status, 200);
  assert.deepEqual(
    sinks.map(({ state }) => state.isEnded),
    [true, false, false, false],
  );
  streams.disconnect();
  assert.ok([...sinks, late].every(({ state }) => state.isEnded));
});

test("a stream of another replica is not resumed with the stream of another request that has its number", () => {
  const streams = streamsAt({ nowMs: 1_000 });
  const [completed, canceled, open] = [streams.create(0, '"a"'), streams.create(0, '"b"'), streams.create(0, '"c"')];
  for (const stream of [completed, canceled, open]) stream.attach(sink().call);
  completed.event('{"n":1}');
  completed.last('{"n":2}');
  canceled.begin();
  canceled.complete();
  open.event('{"n":3}');
  for (const { number } of [completed, canceled, open]) {
    const resumed = sink();
    streams.resumeResponse(resumed.call, { stream: number, number: 0, answers: '"other"' });
    assert.match(resumed.state.text, /"id":"other","error":.*no longer available/);
    assert.doesNotMatch(resumed.state.text, /"n":/);
  }
  const resumed = sink();
  streams.resumeResponse(resumed.call, { stream: open.number, number: 0, answers: '"c"' });
  assert.match(resumed.state.text, /"n":3/);
});
