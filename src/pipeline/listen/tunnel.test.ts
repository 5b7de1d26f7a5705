import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { MemorySocket } from "../../../test/support/memory-socket.ts";
import { StreamPool } from "../../base/memory-budget.ts";
import { IDLE_LIMIT_MS, watchIdle } from "./idle.ts";
import { Tunnel } from "./tunnel.ts";

const WAITING = Buffer.alloc(256 * 1024);

/** A tunnel in which bytes wait for both sides, because neither reads. */
function openTunnel(isWebSocket: boolean) {
  const clock = fakeClock();
  const pool = new StreamPool(64 * 1024 * 1024);
  const idle = watchIdle(clock);
  const client = new MemorySocket();
  const backend = new MemorySocket();
  client.isStuck = true;
  backend.isStuck = true;
  let closed = 0;
  const tunnel = new Tunnel(client, backend, {
    clock,
    idle,
    waitingBytes: pool,
    chargedTo: "192.0.2.1",
    idleLimitMs: 600_000,
    isWebSocket,
    closed: () => {
      closed += 1;
    },
    unexpected: assert.fail,
  });
  tunnel.start(Buffer.alloc(0));
  const finish = (): void => {
    client.finishClosing();
    backend.finishClosing();
  };
  return { clock, pool, idle, client, backend, tunnel, finish, closed: () => closed };
}

type Opened = ReturnType<typeof openTunnel>;

const ENDS: Readonly<Record<string, (opened: Opened) => unknown>> = {
  "the client resets it": ({ client }) => client.arriveReset(),
  "the backend resets it": ({ backend }) => backend.arriveReset(),
  "the client ends": ({ client }) => client.arriveEnd(),
  "the backend ends": ({ backend }) => backend.arriveEnd(),
  "the gateway shuts down": ({ tunnel }) => tunnel.goAway(),
  "the gateway destroys it": ({ tunnel }) => tunnel.destroy(),
  "the memory is short": ({ pool }) => pool.cutLargest(),
};

for (const isWebSocket of [false, true])
  for (const [end, action] of Object.entries(ENDS))
    test(`the bytes that wait in a ${isWebSocket ? "WebSocket" : "tunnel"} are released when ${end}`, async () => {
      const opened = openTunnel(isWebSocket);
      const { clock, pool, client, backend, finish } = opened;
      client.arrive(WAITING);
      backend.arrive(WAITING);
      await new Promise(setImmediate);
      assert.equal(pool.usedBytes, 2 * WAITING.length);
      action(opened);
      // An end is not noticed before the bytes ahead of it are read, or the tunnel is idle for too long.
      for (let i = 0; i < 3; i++) {
        await clock.advance(IDLE_LIMIT_MS);
        await new Promise(setImmediate);
        finish();
      }
      assert.equal(opened.closed(), 1);
      assert.equal(pool.usedBytes, 0);
      opened.idle.stop();
    });
