import assert from "node:assert/strict";
import { test } from "node:test";
import { Opening } from "./client-connection.ts";

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

test("the preface is detected however it is split, and no bytes are lost", () => {
  for (let cut = 1; cut < PREFACE.length; cut++) {
    const opening = new Opening();
    assert.equal(opening.look(Buffer.from(PREFACE.slice(0, cut))), undefined);
    const opened = opening.look(Buffer.from(`${PREFACE.slice(cut)}rest`));
    assert.deepEqual([opened?.isHttp2, opened?.bytes.toString()], [true, `${PREFACE}rest`]);
  }
});

for (const text of ["GET / HTTP/1.1\r\n", "POST", "PUT /", "PRI * HTTP/1.1\r\n\r\n", "PRx", "\r\nPRI"]) {
  test(`${JSON.stringify(text)} is HTTP/1.1`, () => {
    const opened = new Opening().look(Buffer.from(text));
    assert.deepEqual([opened?.isHttp2, opened?.bytes.toString()], [false, text]);
  });
}

test("input that only begins like the preface is read as HTTP/1.1, with all its bytes", () => {
  const opening = new Opening();
  assert.equal(opening.look(Buffer.from("P")), undefined);
  const opened = opening.look(Buffer.from("OST / HTTP/1.1\r\n"));
  assert.deepEqual([opened?.isHttp2, opened?.bytes.toString()], [false, "POST / HTTP/1.1\r\n"]);
});
