import assert from "node:assert/strict";
import { test } from "node:test";
import { readStream } from "../../../test/support/admin.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type EventStream, eventStreamResponse } from "./event-stream.ts";

function open() {
  const clock = fakeClock();
  let stream: EventStream | undefined;
  let closed = 0;
  const read = readStream(
    eventStreamResponse(clock, (opened) => {
      stream = opened;
      return () => {
        closed += 1;
      };
    }),
  );
  if (!stream) throw new Error("not opened");
  return { clock, read, stream, closed: () => closed };
}

test("comments and data are lines of their own, followed by an empty one", () => {
  const { read, stream } = open();
  stream.comment("armed");
  stream.data({ text: "a\nb" });
  assert.equal(read.text(), ': armed\n\ndata: {"text":"a\\nb"}\n\n');
});

test("a heartbeat is sent each second", async () => {
  const { clock, read } = open();
  await clock.advance(2_500);
  assert.equal(read.text(), ": keep-alive\n\n: keep-alive\n\n");
});

test("a stalled reader loses events beyond half a megabyte, and they are not buffered", () => {
  const { read, stream } = open();
  read.stall();
  const big = "x".repeat(100_000);
  for (let i = 0; i < 100; i++) stream.data(big);
  assert.equal(read.text(), "");
});

test("the limit of buffered events is counted in bytes, not in characters", () => {
  const { read, stream } = open();
  stream.data("é".repeat(256 * 1024));
  assert.equal(read.text(), "");
  stream.data("x".repeat(500 * 1024));
  assert.match(read.text(), /^: dropped 1 events[^\n]*\n\ndata: "x+"\n\n$/);
});

test("when the reader disconnects, the stream is cleaned up once, and writing is harmless", async () => {
  const { clock, read, stream, closed } = open();
  read.leave();
  read.leave();
  stream.data("late");
  stream.end();
  await clock.advance(5_000);
  assert.equal(closed(), 1);
  assert.equal(read.text(), "");
  assert.equal(clock.pending(), 0);
});

test("ending the stream stops its timer and its work", async () => {
  const { clock, read, stream, closed } = open();
  stream.end();
  await read.ended;
  assert.equal(closed(), 1);
  assert.equal(clock.pending(), 0);
});
