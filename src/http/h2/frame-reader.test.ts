import assert from "node:assert/strict";
import type { Http2Stream } from "node:http2";
import { Readable } from "node:stream";
import { test } from "node:test";
import fc from "fast-check";
import { FrameReader } from "./frame-reader.ts";

/** A stream to which the test pushes like Node, and the callbacks that run after the current reads. */
function open(data: (chunk: Buffer) => boolean = () => true, early: readonly Buffer[] = []) {
  const stream = new Readable({ read: () => undefined, autoDestroy: false });
  for (const chunk of early) stream.push(chunk);
  const scheduled: (() => void)[] = [];
  const events: string[] = [];
  let frames = 0;
  let reads = 0;
  stream._read = () => {
    reads += 1;
  };
  stream.on("end", () => events.push("end"));
  const reader = new FrameReader(
    stream as unknown as Http2Stream,
    {
      frame: () => {
        frames += 1;
      },
      data: (chunk) => {
        events.push(chunk.toString());
        return data(chunk);
      },
    },
    (action) => void scheduled.push(action),
  );
  return {
    reader,
    stream,
    events,
    get frames() {
      return frames;
    },
    /** How often Node was told to extend the window. */
    get reads() {
      return reads;
    },
    push: (text: string) => stream.push(Buffer.from(text)),
    afterReads: () => {
      for (const action of scheduled.splice(0)) action();
    },
  };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("small chunks of one read are passed on together after it, and each counts as a frame", () => {
  const opened = open();
  const { events, push, afterReads } = opened;
  for (let i = 0; i < 6_500; i++) push("x");
  assert.deepEqual([events, opened.frames], [[], 6_500]);
  afterReads();
  assert.deepEqual(events, ["x".repeat(6_500)]);
  push("y");
  afterReads();
  assert.deepEqual(events.slice(1), ["y"]);
});

test("a large chunk is passed on at once, after the small ones before it", () => {
  const { events, push, afterReads } = open();
  push("a");
  push("b".repeat(2_000));
  push("c");
  assert.deepEqual(events, ["a", "b".repeat(2_000)]);
  afterReads();
  assert.deepEqual(events.slice(2), ["c"]);
});

test("the end follows what is held", async () => {
  const { events, push, stream } = open();
  push("a");
  push("b");
  stream.push(null);
  await settled();
  assert.deepEqual(events, ["ab", "end"]);
});

test("a paused reader holds what arrives, lets the window fill, and continues where it stopped", async () => {
  let mayContinue = false;
  const { events, push, stream, reader, afterReads } = open(() => mayContinue);
  assert.equal(push("a"), true);
  afterReads();
  assert.equal(push("b"), false);
  assert.equal(push("c".repeat(2_000)), false);
  stream.push(null);
  afterReads();
  await settled();
  assert.deepEqual(events, ["a"]);
  mayContinue = true;
  reader.resume();
  await settled();
  assert.deepEqual(events, ["a", `b${"c".repeat(2_000)}`, "end"]);
});

test("resuming asks Node for more", () => {
  const opened = open();
  opened.reader.pause();
  assert.equal(opened.push("a"), false);
  const before = opened.reads;
  opened.reader.resume();
  assert.equal(opened.reads, before + 1);
  assert.equal(opened.push("b"), true);
});

test("chunks that arrived before the reader come first, also if the stream has ended", async () => {
  const { events, push, afterReads } = open(() => true, [Buffer.from("a"), Buffer.from("b")]);
  push("c");
  afterReads();
  assert.deepEqual(events, ["abc"]);
  const long = open(() => true, [Buffer.alloc(20_000, "x")]);
  long.afterReads();
  assert.deepEqual(
    long.events.map(({ length }) => length),
    [16_384, 20_000 - 16_384],
  );
  const ended = open(() => true, [Buffer.from("a")]);
  ended.stream.push(null);
  await settled();
  assert.deepEqual(ended.events, ["a", "end"]);
});

test("any sequence of chunks and pauses passes on the same bytes in order, and ends once", async () => {
  const step = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(1, 2, 900, 1_023, 1_024, 20_000).map((bytes) => ({ bytes })) },
    fc.constantFrom("pause", "resume", "afterReads", "flush").map((call) => ({ call })),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.array(fc.boolean()), async (steps, verdicts) => {
      let i = 0;
      const { reader, stream, events, push, afterReads } = open(() => verdicts[i++] ?? true);
      let sent = "";
      for (const one of steps) {
        if ("bytes" in one) {
          const text = String.fromCharCode(97 + (sent.length % 26)).repeat(one.bytes);
          sent += text;
          push(text);
        } else if (one.call === "afterReads") afterReads();
        else reader[one.call as "pause" | "resume" | "flush"]();
      }
      stream.push(null);
      for (let resumes = 0; resumes < 200 && !events.includes("end"); resumes++) {
        reader.resume();
        afterReads();
        await settled();
      }
      assert.equal(events.at(-1), "end");
      assert.equal(events.slice(0, -1).join(""), sent);
    }),
    { numRuns: 100 },
  );
});
