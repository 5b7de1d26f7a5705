import assert from "node:assert/strict";
import { test } from "node:test";
import type { AdminAnswer, AdminSink } from "../server/endpoint.ts";
import { mergeStreams } from "./merge-streams.ts";

/** Streams of threads, and what their reader got. `canFinish`: they hear that enough was said. */
function openStreams(count: number, canFinish = true) {
  const sinks: AdminSink[] = [];
  const asked: number[] = [];
  const closed: number[] = [];
  const answers = Array.from(
    { length: count },
    (_, index): AdminAnswer => ({
      status: 200,
      type: "text/event-stream",
      stream(sink) {
        sinks[index] = sink;
        sink.onClose(() => closed.push(index));
        if (canFinish) sink.onFinish?.(() => asked.push(index));
      },
    }),
  );
  const got: string[] = [];
  const merged = mergeStreams(answers);
  assert.ok("stream" in merged);
  merged.stream({
    write: (chunk) => got.push(String(chunk)) > 0,
    end: () => void got.push("end"),
    onClose: () => undefined,
    bufferedBytes: () => 0,
  });
  const thread = (index: number): AdminSink => {
    const sink = sinks[index];
    assert.ok(sink);
    return sink;
  };
  for (let i = 0; i < count; i++) thread(i).write("armed");
  return { thread, got, asked, closed };
}

for (const last of [0, 1, 2])
  test(`what other threads have said before thread ${last} ends the stream is read, however late it comes`, () => {
    const { thread, got, asked } = openStreams(3);
    assert.deepEqual(got, ["armed"]);
    const others = [0, 1, 2].filter((one) => one !== last);
    thread(last).write(`of ${last}`);
    thread(last).end();
    assert.deepEqual(asked, others);
    for (const other of others) {
      thread(other).write(`of ${other}`);
      assert.ok(!got.includes("end"));
      thread(other).end();
    }
    assert.deepEqual(got, ["armed", `of ${last}`, ...others.map((one) => `of ${one}`), "end"]);
    thread(last).end();
    thread(last).write("too late");
    assert.equal(got.at(-1), "end");
  });

test("streams that cannot be asked end with the first of them", () => {
  const { thread, got, closed } = openStreams(2, false);
  thread(1).end();
  assert.deepEqual(
    [got, closed],
    [
      ["armed", "end"],
      [0, 1],
    ],
  );
});

test("a thread that dies while the others finish is not waited for", () => {
  const { thread, got } = openStreams(2);
  thread(0).end();
  assert.deepEqual(got, ["armed"]);
  thread(1).end();
  assert.deepEqual(got, ["armed", "end"]);
});
