/**
 * AWS event streams: a second reader, written from the format's description, finds the same messages or refuses as well,
 * at every chunking.
 */

import { crc32 } from "node:zlib";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { createEventStreamReader } from "../../../src/llm/usage/stream-events.ts";
import type { Random } from "../../support/random.ts";
import { waysToArrive } from "../pieces.ts";
import { defineTarget, expectSame, refusalOf } from "../target.ts";

const MAX_BYTES = 2_000;
const STREAM = peerInput("llm-provider/bedrock-stream").upTo(MAX_BYTES);
const SIZES: Readonly<Record<number, number>> = { 0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16 };

interface Reading {
  readonly messages: readonly unknown[];
  readonly end: string;
}

function read(pieces: readonly Buffer[]): Reading {
  const messages: unknown[] = [];
  const reader = createEventStreamReader(
    STREAM,
    ({ messageType, type, payload }) => void messages.push([messageType, type, payload.toString("latin1")]),
  );
  const refusal = refusalOf(() => {
    for (const piece of pieces) reader.push(piece);
  }, Error);
  return { messages, end: refusal !== undefined ? "refused" : reader.atBoundary() ? "whole" : "open" };
}

function reference(bytes: Buffer): Reading {
  const messages: unknown[] = [];
  let rest = bytes;
  while (rest.length >= 12) {
    const total = rest.readUInt32BE(0);
    if (total > MAX_BYTES || total < 16 || crc32(rest.subarray(0, 8)) !== rest.readUInt32BE(8))
      return { messages, end: "refused" };
    if (rest.length < total) return { messages, end: "open" };
    const frame = rest.subarray(0, total);
    const message =
      crc32(frame.subarray(0, total - 4)) === frame.readUInt32BE(total - 4) ? messageIn(frame) : undefined;
    if (message === undefined) return { messages, end: "refused" };
    messages.push(message);
    rest = rest.subarray(total);
  }
  return { messages, end: rest.length === 0 ? "whole" : "open" };
}

/** Undefined where a header does not fit into the headers, or is of a type that does not exist. */
function messageIn(frame: Buffer): unknown {
  const headersEnd = 12 + frame.readUInt32BE(4);
  if (headersEnd > frame.length - 4) return undefined;
  const headers = frame.subarray(12, headersEnd);
  let messageType = "event";
  let type = "";
  for (let at = 0; at < headers.length; ) {
    const nameSize = headers[at] as number;
    if (at + 1 + nameSize >= headers.length) return undefined;
    const name = headers.toString("latin1", at + 1, at + 1 + nameSize);
    const kind = headers[at + 1 + nameSize] as number;
    at += 2 + nameSize;
    let size = SIZES[kind];
    if (size === undefined) {
      if ((kind !== 6 && kind !== 7) || at + 2 > headers.length) return undefined;
      size = headers.readUInt16BE(at);
      at += 2;
    }
    if (at + size > headers.length) return undefined;
    const value = headers.toString("utf8", at, at + size);
    if (kind === 7 && name === ":message-type") messageType = value;
    if (kind === 7 && [":event-type", ":exception-type", ":error-code"].includes(name)) type = value;
    at += size;
  }
  return [messageType, type, frame.toString("latin1", headersEnd, frame.length - 4)];
}

function frameOf(headers: Buffer, payload: Buffer, random: Random): Buffer {
  const total = 16 + headers.length + payload.length + (random.oneIn(30) ? random.int(9) - 4 : 0);
  const frame = Buffer.alloc(16 + headers.length + payload.length);
  frame.writeUInt32BE(Math.max(0, total), 0);
  frame.writeUInt32BE(Math.max(0, headers.length + (random.oneIn(20) ? random.int(9) - 4 : 0)), 4);
  frame.writeUInt32BE(random.oneIn(40) ? random.next() : crc32(frame.subarray(0, 8)), 8);
  headers.copy(frame, 12);
  payload.copy(frame, 12 + headers.length);
  frame.writeUInt32BE(random.oneIn(40) ? random.next() : crc32(frame.subarray(0, frame.length - 4)), frame.length - 4);
  return frame;
}

function headerOf(random: Random): Buffer {
  const name = Buffer.from(random.pick([":event-type", ":message-type", ":exception-type", "x", ""]));
  const kind = random.oneIn(4) ? random.int(12) : 7;
  const value = Buffer.from(random.pick(["chunk", "event", "exception", "", "é"]));
  const size = SIZES[kind];
  const written =
    size === undefined
      ? Buffer.concat([Buffer.from([0, value.length + (random.oneIn(25) ? 1 : 0)]), value])
      : Buffer.alloc(size, 7);
  return Buffer.concat([Buffer.from([name.length]), name, Buffer.from([kind]), written]);
}

export const awsEventStream = defineTarget<Buffer>({
  name: "aws-event-stream",
  seeds: [Buffer.from("0000001000000000" + "05c248eb" + "7d98c8ff", "hex")],
  smokeCases: 1_200,
  generate: (random) =>
    Buffer.concat(
      random.list(3, () =>
        frameOf(
          Buffer.concat(random.list(3, () => headerOf(random))),
          Buffer.from(random.text(['{"a":1}', "x", "\0"], 4)),
          random,
        ),
      ),
    ),
  run(bytes) {
    const whole = read([bytes]);
    expectSame(whole, reference(bytes), "as the reference has it");
    for (const pieces of waysToArrive(bytes)) expectSame(read(pieces), whole, "in pieces");
    return `${whole.messages.length} ${whole.end} ${JSON.stringify(whole.messages).length >> 4}`;
  },
});
