import assert from "node:assert/strict";
import { test } from "node:test";
import { peerInput } from "../base/peer-inputs.ts";
import { closeFrame, FrameCounter } from "./websocket-frames.ts";

const FRAME = peerInput("client/websocket-frame");

function frame(payloadBytes: number, isMasked: boolean, opcode = 2): Buffer {
  const mask = isMasked ? 0x80 : 0;
  const head =
    payloadBytes < 126
      ? Buffer.from([0x80 | opcode, mask | payloadBytes])
      : payloadBytes < 65_536
        ? Buffer.from([0x80 | opcode, mask | 126, payloadBytes >> 8, payloadBytes & 0xff])
        : Buffer.from([
            0x80 | opcode,
            mask | 127,
            0,
            0,
            0,
            0,
            0,
            payloadBytes >> 16,
            (payloadBytes >> 8) & 0xff,
            payloadBytes & 0xff,
          ]);
  return Buffer.concat([head, Buffer.alloc(isMasked ? 4 : 0, 0xff), Buffer.alloc(payloadBytes, 0x88)]);
}

const SIZES = [0, 1, 125, 126, 127, 65_535, 65_536, 70_000];

test("boundaries are found for every length, masked or not, however the bytes are split", () => {
  for (const isMasked of [false, true]) {
    for (const size of SIZES) {
      for (const step of [1, 3, 1000, 1_000_000]) {
        const bytes = frame(size, isMasked);
        const counter = new FrameCounter(FRAME);
        for (let at = 0; at < bytes.length; at += step) {
          counter.read(bytes.subarray(at, at + step));
          assert.equal(counter.isAtBoundary, at + step >= bytes.length, `${size} ${isMasked} ${step} ${at}`);
        }
        assert.equal(counter.hasClosed, false);
      }
    }
  }
});

test("reading to the boundary stops between two frames", () => {
  const counter = new FrameCounter(FRAME);
  const first = frame(200, true);
  counter.read(first.subarray(0, 50));
  assert.equal(counter.read(Buffer.concat([first.subarray(50), frame(3, true)]), true), first.length - 50);
  assert.equal(counter.isAtBoundary, true);
  assert.equal(counter.read(frame(3, true), true), 0, "at a boundary nothing is read");
});

test("a close frame is detected, including the gateway's own", () => {
  for (const bytes of [closeFrame("client"), closeFrame("server"), frame(0, true, 8)]) {
    const counter = new FrameCounter(FRAME);
    counter.read(bytes);
    assert.deepEqual([counter.hasClosed, counter.isAtBoundary], [true, true]);
  }
});
