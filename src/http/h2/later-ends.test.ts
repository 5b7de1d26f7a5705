import assert from "node:assert/strict";
import type { Http2Session, Http2Stream } from "node:http2";
import { test } from "node:test";
import { closeStreamLater, endSessionLater } from "./later-ends.ts";

function session() {
  const told: string[] = [];
  const fake = {
    get destroyed() {
      return told.some((entry) => entry.startsWith("destroy"));
    },
    close(callback?: () => void) {
      told.push("close");
      callback?.();
    },
    destroy(this: Http2Session, error?: Error, code?: number) {
      // Node ends a session only once.
      if (!this.destroyed) told.push(`destroy ${error?.message ?? ""} ${code ?? ""}`.trim());
    },
  };
  return { told, session: fake as unknown as Http2Session };
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("ending a session takes effect in the next turn, with the given arguments", async () => {
  const { told, session: one } = session();
  endSessionLater(one);
  one.close(() => told.push("closed"));
  one.destroy(new Error("flood"), 11);
  // For a destroyed session, Node drops the streams of the rest of the packet, and crashes when their data arrives.
  assert.equal(one.destroyed, false);
  await Promise.resolve();
  await new Promise((resolve) => process.nextTick(resolve));
  assert.deepEqual(told, [], "not in this turn, nor in what runs at its end");
  await nextTurn();
  assert.deepEqual(told, ["close", "closed", "destroy flood 11"]);
});

test("outside its events a session is ended immediately", () => {
  const { told, session: one } = session();
  endSessionLater(one)();
  assert.deepEqual(told, ["close", "destroy"]);
});

test("a stream is closed in the next turn, unless it is closed by then", async () => {
  const codes: number[] = [];
  const stream = { destroyed: false, close: (code: number) => codes.push(code) };
  closeStreamLater(stream as unknown as Http2Stream, 2);
  assert.deepEqual(codes, []);
  await nextTurn();
  assert.deepEqual(codes, [2]);
  closeStreamLater(stream as unknown as Http2Stream, 0);
  stream.destroyed = true;
  await nextTurn();
  assert.deepEqual(codes, [2]);
});
