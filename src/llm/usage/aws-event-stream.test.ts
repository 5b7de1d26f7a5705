import assert from "node:assert/strict";
import { test } from "node:test";
import { crc32 } from "node:zlib";
import { peerInput } from "../../base/peer-inputs.ts";
import { createEventStreamReader } from "./stream-events.ts";

const STREAM = peerInput("llm-provider/bedrock-stream");

/** The start of a message of this size, with correct checksums of its lengths. */
function prelude(totalBytes: number): Buffer {
  const bytes = Buffer.alloc(12);
  bytes.writeUInt32BE(totalBytes, 0);
  bytes.writeUInt32BE(crc32(bytes.subarray(0, 8)), 8);
  return bytes;
}

/** A message whose headers have a name of one character and the value true. */
function messageOf(headers: number): Buffer {
  const bytes = Buffer.alloc(16 + 3 * headers);
  bytes.writeUInt32BE(bytes.length, 0);
  bytes.writeUInt32BE(3 * headers, 4);
  bytes.writeUInt32BE(crc32(bytes.subarray(0, 8)), 8);
  for (let at = 12; at < bytes.length - 4; at += 3) bytes.write("\u0001a\u0000", at, "latin1");
  bytes.writeUInt32BE(crc32(bytes.subarray(0, -4)), bytes.length - 4);
  return bytes;
}

test("a message has at most as many headers as its entry allows, because reading them does not yield", () => {
  let messages = 0;
  const read = (headers: number): void =>
    createEventStreamReader(STREAM, () => {
      messages += 1;
    }).push(messageOf(headers));
  read(STREAM.maxItems);
  assert.equal(messages, 1);
  assert.throws(() => read(STREAM.maxItems + 1), /more than 1000 headers/);
  assert.equal(messages, 1);
});

test("a message that announces more bytes than its entry allows is rejected before they arrive", () => {
  const reader = () => createEventStreamReader(STREAM, () => undefined);
  const largest = reader();
  assert.doesNotThrow(() => largest.push(prelude(STREAM.maxBytes)));
  assert.equal(largest.atBoundary(), false);
  for (const bytes of [STREAM.maxBytes + 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1]) {
    assert.throws(() => reader().push(prelude(bytes)), /event stream message is larger than/, `${bytes} bytes`);
    const later = reader();
    later.push(Buffer.concat([messageOf(1), prelude(bytes).subarray(0, 11)]));
    assert.throws(
      () => later.push(prelude(bytes).subarray(11)),
      /is larger than/,
      `${bytes} bytes after another message`,
    );
  }
});

test("a message that is shorter than its frame is rejected", () => {
  for (const bytes of [0, 1, 12, 15])
    assert.throws(
      () => createEventStreamReader(STREAM, () => undefined).push(prelude(bytes)),
      /shorter than its frame/,
    );
});
