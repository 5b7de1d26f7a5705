/**
 * Clients that send or read too slowly (rows L9 and L10 of the threat table): they are told or cut off, and they
 * are not blamed for a slow backend.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { openRawClient } from "../support/raw-client.ts";
import { behindGateway } from "../support/scenario.ts";
import { untilStill } from "../support/stillness.ts";
import { openConnections, roundTrip } from "../support/under-way.ts";

for (const length of [100, 1_000_000]) {
  test(`a client that stops in the middle of a body of ${length} bytes is told after 60 s [L10]`, async (t) => {
    const clock = fakeClock();
    const { gateway, backend } = await behindGateway(t, undefined, 'policies: { cors: { allowOrigins: ["*"] } }', {
      clock,
    });
    const client = openRawClient(gateway.port());
    client.write(`POST / HTTP/1.1\r\nHost: a\r\nOrigin: http://x\r\nContent-Length: ${length}\r\n\r\nsome`);
    await eventually("the request is under way", () => clock.pending() > 2);
    await clock.advance(50_000);
    assert.equal(client.received(), "");
    await clock.advance(20_000);
    await client.until("408");
    await clock.advance(2_000);
    const answer = await client.ended();
    assert.deepEqual(answer.statuses, [408]);
    assert.deepEqual(answer.errors, ["request_timeout"]);
    assert.match(answer.text, /access-control-allow-origin: \*/);
    assert.match(await gateway.logged("error=request_timeout"), /status=408/);
    assert.equal(backend.received.length, 0);
  });
}

test("a client whose body waits for a slow backend is not blamed", async (t) => {
  const clock = fakeClock();
  let answer: (() => void) | undefined;
  const { gateway } = await behindGateway(
    t,
    (req, res) => {
      req.pause();
      answer = () => {
        req.resume().on("end", () => res.end("at last"));
      };
    },
    "policies: { timeout: { requestTimeout: 10m } }",
    { clock },
  );
  const client = openRawClient(gateway.port());
  client.write("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000000\r\n\r\n");
  client.write(Buffer.alloc(20_000_000));
  await eventually("the backend has it", () => answer !== undefined);
  await untilStill(() => client.socket.bytesWritten - client.socket.writableLength);
  await clock.advance(300_000);
  assert.equal(client.received(), "");
  answer?.();
  await client.until("at last");
});

test("a client that stops reading is cut off after 60 s [R32]", async (t) => {
  const clock = fakeClock();
  let closed = false;
  let written = 0;
  const { gateway } = await behindGateway(
    t,
    (_req, res) => {
      res.on("close", () => {
        closed = true;
      });
      const more = (): void => {
        do written += 65_536;
        while (res.write(Buffer.alloc(65_536)));
        res.once("drain", more);
      };
      more();
    },
    "",
    { clock },
  );
  const client = openRawClient(gateway.port());
  client.socket.pause();
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await untilStill(() => written);
  await clock.advance(50_000);
  assert.equal(closed, false);
  await clock.advance(30_000);
  await eventually("the backend is let go", () => closed);
  client.close();
});

test("a slow but steady upload is not cut by the backend's default limit, which counts from its end [R33]", async (t) => {
  const clock = fakeClock();
  let received = 0;
  const { gateway } = await behindGateway(
    t,
    (req, res) => {
      req.on("data", (chunk: Buffer) => {
        received += chunk.length;
      });
      if (req.url === "/answers") req.on("end", () => res.end("thanks"));
    },
    "",
    { clock },
  );
  for (const path of ["/answers", "/hangs"]) {
    received = 0;
    const client = openRawClient(gateway.port());
    client.write(`PUT ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n`);
    for (let sent = 10_000; sent <= 100_000; sent += 10_000) {
      client.write(Buffer.alloc(10_000));
      await eventually("the piece arrived", () => received === sent);
      await clock.advance(50_000);
    }
    if (path === "/answers") await client.until("thanks");
    else {
      await clock.advance(120_000);
      await client.until("504");
    }
    client.close();
  }
});

test("a client that does not finish its head is told within 11 s [L9]", async (t) => {
  const clock = fakeClock();
  const { gateway } = await behindGateway(t, undefined, "", { clock });
  const client = openRawClient(gateway.port());
  client.write("GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ");
  await eventually("the connection is there", async () => (await openConnections(gateway)) === 1);
  await clock.advance(9_000);
  await roundTrip(gateway);
  assert.equal(client.received(), "");
  await clock.advance(2_000);
  await client.until("408");
  // A refused connection is read for a while, so that the client can read the refusal.
  await clock.advance(5_000);
  assert.deepEqual((await client.ended()).statuses, [408]);
});
