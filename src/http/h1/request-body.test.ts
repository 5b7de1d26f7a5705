import assert from "node:assert/strict";
import { test } from "node:test";
import { readExactly } from "../body.ts";
import { RequestBodySource } from "./request-body.ts";

/** A body whose carrier flushes only when the test says so. */
function aBody() {
  const asked: string[] = [];
  const body = new RequestBodySource({
    pauseBody: () => void asked.push("pause"),
    resumeBody: () => void asked.push("resume"),
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
