import assert from "node:assert/strict";
import { test } from "node:test";
import { HeaderList } from "../../http/headers.ts";
import { responseHead, trailerLines } from "./response-writer.ts";

const kept = { isChunked: false, keptSeconds: 65, now: Date.UTC(2026, 0, 1) };

test("only the gateway sets the connection headers of a head", () => {
  const headers = new HeaderList([
    "x",
    "1",
    "connection",
    "close",
    "keep-alive",
    "timeout=1",
    "transfer-encoding",
    "gzip",
  ]);
  assert.equal(
    responseHead(200, headers, kept),
    "HTTP/1.1 200 OK\r\nx: 1\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nconnection: keep-alive\r\nkeep-alive: timeout=65\r\n\r\n",
  );
  assert.equal(
    responseHead(404, new HeaderList(), { isChunked: true, keptSeconds: 0, now: kept.now + 61_999 }),
    "HTTP/1.1 404 Not Found\r\ndate: Thu, 01 Jan 2026 00:01:01 GMT\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
  );
});

test("the backend's date is kept, an unknown status has a line", () => {
  const text = responseHead(299, new HeaderList(["date", "then"]), kept);
  assert.match(text, /^HTTP\/1\.1 299 Unknown\r\ndate: then\r\nconnection/);
});

for (const [name, value] of [
  ["x", "a\r\nb: c"],
  ["x", "a\nb"],
  ["x", "a\0"],
  ["x", "\x7f"],
  ["x", "\u0100"],
  ["x y", "a"],
  ["", "a"],
  ["x:", "a"],
] as const) {
  test(`${JSON.stringify(name)}: ${JSON.stringify(value)} is never sent`, () => {
    assert.throws(() => responseHead(200, new HeaderList([name, value]), kept), /invalid/);
    const read = new HeaderList(["y", "1"], true);
    read.add(name, value);
    assert.throws(() => responseHead(200, read, kept), /invalid/);
    assert.throws(() => trailerLines([name, value]), /invalid/);
  });
}

test("trailers that frame a message are omitted", () => {
  assert.equal(trailerLines(["x-sum", "1", "content-length", "3", "set-cookie", "a"]), "x-sum: 1\r\n");
  assert.equal(trailerLines(undefined), "");
});
