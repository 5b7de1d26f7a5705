import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readExactly } from "../body.ts";
import { RequestBodySource } from "./request-body.ts";

/** A body whose carrier flushes only when the test says so. */
function aBody() {
  const asked: string[] = [];
  const body = new RequestBodySource({
    pauseBody: () => void asked.push("pause"),
    resumeBody: () => void asked.push("resume"),
    bodyWaits: () => undefined,
  });
  const seen: string[] = [];
  const listen = (): void => {
    body.on("data", (chunk) => void seen.push(String(chunk)));
    body.on("end", () => void seen.push("end"));
    body.on("close", () => void seen.push("close"));
  };
  return { body, asked, seen, listen };
}

test("data that arrives before there is a reader is held, and the connection stops reading", () => {
  const { body, asked, seen, listen } = aBody();
  body.push(Buffer.from("a"));
  assert.deepEqual(asked, ["pause"]);
  assert.equal(body.isDrained, false);
  listen();
  assert.deepEqual(asked, ["pause", "resume"]);
  assert.deepEqual(seen, [], "nothing in the turn of the listener");
  body.complete();
  assert.deepEqual(seen, []);
  assert.equal(body.flush(), true);
  assert.deepEqual(seen, ["a", "end"]);
  assert.equal(body.readableEnded, true);
});

test("a reader gets data as it arrives, and the end once", () => {
  const { body, seen, listen } = aBody();
  listen();
  body.push(Buffer.from("a"));
  body.push(Buffer.from("b"));
  body.complete();
  body.flush();
  body.abort();
  assert.deepEqual(seen, ["a", "b", "end"]);
});

test("a reader that pauses gets nothing until it resumes, in the same order", () => {
  const { body, asked, seen, listen } = aBody();
  listen();
  body.on("data", (chunk) => {
    if (String(chunk) === "a") body.pause();
  });
  body.push(Buffer.from("a"));
  assert.equal(body.isDrained, false, "it is the reader that waits");
  body.push(Buffer.from("b"));
  body.complete();
  assert.equal(body.flush(), false);
  assert.deepEqual(seen, ["a"]);
  body.resume();
  assert.deepEqual(asked, ["resume", "pause", "pause", "resume"]);
  assert.equal(body.flush(), true);
  assert.deepEqual(seen, ["a", "b", "end"]);
});

test("a body that breaks off is closed and never ends", () => {
  const { body, seen, listen } = aBody();
  listen();
  body.push(Buffer.from("a"));
  body.abort();
  body.push(Buffer.from("b"));
  body.complete();
  body.flush();
  assert.deepEqual(seen, ["a", "close"]);
  assert.equal(body.destroyed, true);
});

test("a body of known length is read to the byte, or its reader is notified that it broke off", () => {
  for (const breaks of [false, true]) {
    const { body } = aBody();
    let got: string | undefined;
    readExactly(body, 3, (error, bytes) => {
      got = error === undefined ? String(bytes) : error.message;
    });
    body.push(Buffer.from("ab"));
    if (breaks) body.abort();
    else body.push(Buffer.from("c"));
    assert.match(got ?? "", breaks ? /closed before the body was complete/ : /^abc$/);
  }
});

test("whatever reader and connection do, the bytes stay in order and every waiting byte is reported [R50]", () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("push" as const), bytes: fc.integer({ min: 1, max: 1_200 }) }),
    fc.record({ kind: fc.constant("queued" as const), bytes: fc.nat(100) }),
    fc.record({
      kind: fc.constantFrom("listen", "pause", "resume", "flush", "peek", "complete", "abort" as const),
      bytes: fc.constant(0),
    }),
  );
  const seen = { ended: 0, waited: 0, aborted: 0 };
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.nat(4), (steps, pauseAfter) => {
      let pushed = "";
      let delivered = "";
      let queuedBytes = 0;
      let reportedBytes = 0;
      let state = "open" as "open" | "complete" | "ended" | "aborted";
      let isListening = false;
      const body: RequestBodySource = new RequestBodySource({
        pauseBody: (paused) => assert.equal(paused, body),
        resumeBody: (resumed) => assert.equal(resumed, body),
        bodyWaits(waiting, bytes) {
          assert.equal(waiting, body);
          assert.notEqual(state, "aborted");
          reportedBytes = bytes;
        },
      });
      const listen = (): void => {
        let chunks = 0;
        body.on("data", (chunk: Buffer) => {
          delivered += chunk.toString("latin1");
          chunks += 1;
          if (pauseAfter > 0 && chunks % pauseAfter === 0) body.pause();
        });
        body.on("end", () => {
          assert.equal(state, "complete");
          state = "ended";
        });
      };
      for (const { kind, bytes } of steps) {
        if (kind === "push") {
          if (state !== "open") continue;
          const text = String.fromCharCode(97 + (pushed.length % 26)).repeat(bytes);
          pushed += text;
          body.push(Buffer.from(text, "latin1"));
        } else if (kind === "queued") {
          body.queued(bytes);
          if (state !== "aborted") queuedBytes = bytes;
        } else if (kind === "listen") {
          if (!isListening) listen();
          isListening = true;
        } else if (kind === "complete") {
          if (state !== "open") continue;
          state = "complete";
          body.complete();
        } else if (kind === "abort") {
          if (state !== "ended") state = "aborted";
          body.abort();
        } else if (kind === "peek") {
          const first = pushed.slice(delivered.length, delivered.length + 1);
          body.peek((chunk) => assert.ok((chunk?.toString("latin1") ?? "").startsWith(first) || state === "open"));
        } else if (isListening || kind !== "resume") body[kind]();
        assert.ok(pushed.startsWith(delivered), "bytes are out of order");
        if (state === "ended") assert.equal(delivered, pushed);
        if (state !== "aborted") assert.equal(reportedBytes, pushed.length - delivered.length + queuedBytes);
        if (reportedBytes > 0) seen.waited += 1;
      }
      // A reader that resumes as often as it paused gets everything.
      if (!isListening) listen();
      if (state === "open") {
        state = "complete";
        body.complete();
      }
      for (let i = 0; i < 100 && state === "complete"; i++) {
        body.resume();
        body.flush();
      }
      assert.notEqual(state, "complete");
      if (state === "ended") assert.deepEqual([delivered, reportedBytes], [pushed, queuedBytes]);
      if (state !== "complete") seen[state] += 1;
    }),
    { numRuns: 500, seed: 1 },
  );
  assert.ok(Math.min(seen.ended, seen.waited, seen.aborted) > 20, JSON.stringify(seen));
});
