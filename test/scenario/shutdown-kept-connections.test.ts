/**
 * Idle connections are closed some time after a shutdown or an upgrade begins. A request that has arrived by then, but was
 * not read because the process was busy, is still served.
 */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway } from "../support/gateway.ts";

const LINGER_MS = 5_000;
const REQUEST = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

test("a request that waits in the socket when idle connections are closed is served", async (t) => {
  let closeIdle: (() => void) | undefined;
  const clock: Clock = {
    ...systemClock,
    after(delayMs, callback) {
      if (delayMs !== LINGER_MS) return systemClock.after(delayMs, callback);
      closeIdle = callback;
      return { cancel: () => undefined };
    },
  };
  const yaml = `gateways: { default: { port: 0 } }\nroutes: [{ policies: { directResponse: { body: "yes" } } }]\n`;
  const gateway = await startGateway(yaml, { clock });
  t.after(() => gateway.close());
  const socket = connect(gateway.port(), "127.0.0.1");
  t.after(() => socket.destroy());
  let received = "";
  socket.setEncoding("utf8").on("data", (text: string) => {
    received += text;
  });
  const responses = (): number => received.split("HTTP/1.1 200").length - 1;
  socket.write(REQUEST);
  await eventually("the first response", () => responses() === 1);
  void gateway.app.stop();
  await eventually("the gateway waits before it closes idle connections", () => closeIdle !== undefined);
  // A timer is due before the loop reads sockets.
  setTimeout(() => {
    socket.write(REQUEST);
    closeIdle?.();
  }, 0);
  await eventually("the second response", () => responses() === 2);
  assert.match(received, /connection: close/i);
});
