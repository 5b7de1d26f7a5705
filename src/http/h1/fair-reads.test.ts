import assert from "node:assert/strict";
import { lookup } from "node:dns";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { createServer } from "node:tls";
import fc from "fast-check";
import { certificates } from "../../../test/support/tls/certificates.ts";
import type { Clock } from "../../base/clock.ts";
import { EgressGuard } from "../egress-guard.ts";
import { openSocket } from "./connection.ts";
import { FairReads, READ_BYTES, type ReadSocket } from "./socket-reads.ts";

const ACCEPT_COST_MS = 0.3;
/** libuv reads a socket this many times in one turn while each read fills the buffer. */
const READS_IN_TURN = 32;

class SimulatedSocket implements ReadSocket {
  readonly destroyed = false;
  isReading = true;
  isPausedByOwner = false;
  resumedWhilePaused = 0;
  reads = 0;
  isPaused(): boolean {
    return this.isPausedByOwner;
  }
  resume(): void {
    if (this.isPausedByOwner) this.resumedWhilePaused += 1;
    this.isReading = true;
  }
}

/** An event loop like libuv's over simulated sockets. Time advances only by the costs of accepts and reads. */
class SimulatedLoop {
  nowMs = 0;
  backlog = 0;
  longestMs = 0;
  readonly sockets: SimulatedSocket[] = [];
  readonly fair: FairReads;
  #scheduled: (() => void)[] = [];

  constructor() {
    const clock = { monotonicMs: () => this.nowMs } as Clock;
    this.fair = new FairReads(clock, (action) => void this.#scheduled.push(action));
  }

  turn(readMs: number, isFull: boolean, size = isFull ? READ_BYTES : 1_000): void {
    const startMs = this.nowMs;
    if (this.backlog > 0) {
      this.backlog -= 1;
      this.nowMs += ACCEPT_COST_MS;
      this.fair.accepted();
    }
    for (const socket of this.sockets)
      for (let i = 0; i < READS_IN_TURN && socket.isReading && !socket.isPausedByOwner; i++) {
        this.nowMs += readMs;
        socket.reads += 1;
        if (!this.fair.mayReadOn(socket, size)) socket.isReading = false;
        if (!isFull) break;
      }
    const scheduled = this.#scheduled;
    this.#scheduled = [];
    for (const action of scheduled) action();
    this.longestMs = Math.max(this.longestMs, this.nowMs - startMs);
  }
}

function loopWith(sockets: number): SimulatedLoop {
  const loop = new SimulatedLoop();
  for (let i = 0; i < sockets; i++) loop.sockets.push(new SimulatedSocket());
  return loop;
}

test("a backlog is accepted in time however many sockets are busy, and all of them are still read", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 600 }),
      fc.integer({ min: 1, max: 511 }),
      fc.double({ min: 0.01, max: 0.2, noNaN: true }),
      fc.boolean(),
      (busy, backlog, readMs, isFull) => {
        const loop = loopWith(busy);
        loop.backlog = backlog;
        while (loop.backlog > 0) loop.turn(readMs, isFull);
        const turnMs = (busy + READS_IN_TURN) * readMs + ACCEPT_COST_MS;
        assert.ok(loop.longestMs <= turnMs + 1e-6, `a turn of ${loop.longestMs} ms`);
        // 60 accepts in 20 ms, between two turns in which sockets are read; or one in each turn shorter than 4 ms.
        const cycles = Math.ceil(backlog / 60) + 1;
        const boundMs = Math.max(cycles * (2 * turnMs + 21), backlog * (4 + ACCEPT_COST_MS)) + turnMs;
        assert.ok(loop.nowMs <= boundMs, `${backlog} accepts took ${loop.nowMs} ms, not ${boundMs}`);
        const before = loop.sockets.map(({ reads }) => reads);
        for (let i = 0; i < 3; i++) loop.turn(readMs, isFull);
        assert.ok(loop.sockets.every(({ reads }, i) => reads > (before[i] as number)));
        assert.equal(loop.fair.isHolding, false);
      },
    ),
  );
});

test("an iteration reads on for a few milliseconds only if the receivers of large reads are slow", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 20 }),
      fc.double({ min: 0.01, max: 40, noNaN: true }),
      fc.integer({ min: 16 * 1024, max: READ_BYTES }),
      (sockets, readMs, size) => {
        const loop = loopWith(sockets);
        for (let i = 1; i <= 5; i++) {
          loop.turn(readMs, true, size);
          assert.ok(loop.sockets.every(({ reads }) => reads >= i));
        }
        // Each socket is read at least once, because a socket stops only after a read.
        const boundMs = 5 + (sockets + 1) * readMs;
        assert.ok(loop.longestMs <= boundMs + 1e-6, `an iteration of ${loop.longestMs} ms, not ${boundMs}`);
        if (sockets * READS_IN_TURN * readMs < 5 && size < READ_BYTES)
          assert.ok(
            loop.sockets.every(({ reads }) => reads === 5 * READS_IN_TURN),
            "fast receivers are read on",
          );
      },
    ),
  );
});

test("a server that sends everything at once is read in several iterations, if that takes time", async (t) => {
  const bytes = 4 * 1024 * 1024;
  const server = createServer(certificates.server, (socket) => socket.end(Buffer.alloc(bytes)));
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  let received = 0;
  let largeReads = 0;
  let most = 0;
  let isEnded = false;
  t.after(() => {
    isEnded = true;
  });
  const iteration = (): void => {
    most = Math.max(most, largeReads);
    largeReads = 0;
    if (!isEnded) setImmediate(iteration);
  };
  setImmediate(iteration);
  const target = {
    protocol: "https",
    host: "127.0.0.1",
    port: (server.address() as AddressInfo).port,
    tls: { insecure: true },
    egress: EgressGuard.for("configuration"),
  } as const;
  const socket = openSocket(target, lookup, ["http/1.1"], 0, (chunk) => {
    received += chunk.length;
    if (chunk.length >= 16 * 1024) largeReads += 1;
    const untilMs = performance.now() + 3;
    while (performance.now() < untilMs);
    return true;
  });
  await once(socket, "close");
  assert.equal(received, bytes);
  // What OpenSSL decrypted from 64 KiB is delivered without a pause.
  assert.ok(most > 0 && most <= 7, `${most} large reads in one iteration`);
});

test("a continuous stream of connections leaves half of the time to the sockets", () => {
  const loop = loopWith(200);
  loop.backlog = Number.POSITIVE_INFINITY;
  while (loop.nowMs < 10_000) loop.turn(0.1, false);
  for (const { reads } of loop.sockets) assert.ok(reads * 200 * 0.1 >= 4_500, `${reads} reads`);
});

test("a socket that its owner paused in the meantime is not resumed", () => {
  const loop = loopWith(100);
  loop.backlog = 50;
  while (!loop.fair.isHolding) loop.turn(0.1, false);
  loop.turn(0.1, false);
  const [paused, busy] = loop.sockets as [SimulatedSocket, SimulatedSocket];
  paused.isPausedByOwner = true;
  const { reads } = busy;
  for (let i = 0; i < 60; i++) loop.turn(0.1, false);
  assert.equal(paused.resumedWhilePaused, 0);
  assert.ok(busy.reads > reads);
});

test("actions run immediately, or in order after the wait while sockets must wait", () => {
  const loop = loopWith(100);
  const ran: string[] = [];
  loop.fair.run(() => ran.push("at once"));
  assert.deepEqual(ran, ["at once"]);
  loop.backlog = 50;
  while (!loop.fair.isHolding) loop.turn(0.1, false);
  loop.fair.run(() => ran.push("first"));
  loop.fair.runLater(() => ran.push("in another turn"));
  loop.fair.run(() => ran.push("second"));
  assert.deepEqual(ran, ["at once"]);
  while (loop.fair.isHolding) loop.turn(0.1, false);
  assert.deepEqual(ran, ["at once", "first", "second"]);
  loop.turn(0.1, false);
  assert.deepEqual(ran, ["at once", "first", "second", "in another turn"]);
});
