import assert from "node:assert/strict";
import type { Http2Session } from "node:http2";
import type { Socket } from "node:net";
import { test } from "node:test";
import { LifeSigns } from "./life-signs.ts";

function peer() {
  const socket = { bytesRead: 10 };
  const pings: ((error: Error | null) => void)[] = [];
  const session = { destroyed: false, ping: (answered: (error: Error | null) => void) => pings.push(answered) };
  const signs = new LifeSigns(session as unknown as Http2Session, socket as Socket, 1_000);
  // The first check only records how much was received.
  assert.equal(signs.hasDied(500), false);
  const verdicts = (looks: number): boolean[] => Array.from({ length: looks }, () => signs.hasDied(500));
  return { socket, pings, verdicts };
}

test("a peer that sends is never pinged", () => {
  const { socket, pings, verdicts } = peer();
  for (let i = 0; i < 20; i++) {
    assert.deepEqual(verdicts(1), [false]);
    socket.bytesRead += 1;
  }
  assert.equal(pings.length, 0);
});

test("a silent peer is pinged once, and is dead if nothing arrives", () => {
  const { pings, verdicts } = peer();
  assert.deepEqual(verdicts(5), [false, false, false, false, false]);
  assert.equal(pings.length, 1);
  assert.deepEqual(verdicts(1), [true]);
});

test("a silent peer that responds is pinged again", () => {
  const { pings, verdicts } = peer();
  for (let i = 1; i <= 10; i++) {
    assert.deepEqual(verdicts(3), [false, false, false]);
    assert.equal(pings.length, i);
    pings.at(-1)?.(null);
  }
});

test("a canceled ping is not a response", () => {
  const { pings, verdicts } = peer();
  verdicts(3);
  pings[0]?.(new Error("cancelled"));
  assert.deepEqual(verdicts(3), [false, false, true]);
});
