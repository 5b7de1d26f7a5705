import assert from "node:assert/strict";
import { test } from "node:test";
import type { AdminResponse, AdminSink } from "../server/endpoint.ts";
import { mergeStreams } from "./merge-streams.ts";

/** Opens the streams of several threads and collects the merged output. `canFinish`: the threads support `onFinish`. */
function openStreams(count: number, canFinish = true) {
  const sinks: AdminSink[] = [];
  const finished: number[] = [];
  const closed: number[] = [];
  const responses = Array.from(
    { length: count },
    (_, index): AdminResponse => ({
      status: 200,
      type: "text/event-stream",
      stream(sink) {
        sinks[index] = sink;
        sink.onClose(() => closed.push(index));
        if (canFinish) sink.onFinish?.(() => finished.push(index));
      },
    }),
  );
  const got: string[] = [];
  const merged = mergeStreams(responses);
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
  return { thread, got, finished, closed };
}

for (const last of [0, 1, 2])
  test(`events that other threads sent before thread ${last} ends the stream are delivered, however late`, () => {
    const { thread, got, finished } = openStreams(3);
    assert.deepEqual(got, ["armed"]);
    const others = [0, 1, 2].filter((one) => one !== last);
    thread(last).write(`of ${last}`);
    thread(last).end();
    assert.deepEqual(finished, others);
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

test("streams without onFinish end with the first of them", () => {
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

test("a thread that exits while the others finish does not block the end", () => {
  const { thread, got } = openStreams(2);
  thread(0).end();
  assert.deepEqual(got, ["armed"]);
  thread(1).end();
  assert.deepEqual(got, ["armed", "end"]);
});
