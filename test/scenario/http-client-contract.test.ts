/**
 * The contract of outgoing calls (`HttpResponseReceiver`) on real sockets: when callbacks come, what abort and resume do inside
 * them, and what an exception in one costs.
 */

import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { createServer, type Socket } from "node:net";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { openHttpPool } from "../../src/http/client/http-pool.ts";
import { EgressGuard } from "../../src/http/egress-guard.ts";
import { HeaderList } from "../../src/http/headers.ts";
import type { HttpCall, HttpPool, HttpResponseReceiver, OutgoingRequest } from "../../src/http/http-client.ts";

interface Server {
  readonly pool: HttpPool;
  /** Resolves when so many connections were closed. */
  closed(count: number): Promise<void>;
}

const BODY = "x".repeat(300_000);
const WHOLE = `HTTP/1.1 200 OK\r\ncontent-length: ${BODY.length}\r\n\r\n${BODY}`;

async function serve(t: TestContext, answer = WHOLE): Promise<Server> {
  let closed = 0;
  const sockets = new Set<Socket>();
  const waiting = new Set<() => void>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("data", () => socket.write(answer));
    socket.on("close", () => {
      closed += 1;
      for (const look of waiting) look();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const pool = openHttpPool({
    protocol: "http",
    egress: EgressGuard.for("configuration"),
    host: "127.0.0.1",
    port: (server.address() as AddressInfo).port,
  });
  t.after(() => {
    pool.close();
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return {
    pool,
    closed: (count) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (closed >= count) resolve();
        };
        waiting.add(look);
        look();
      }),
  };
}

interface Heard {
  readonly events: string[];
  readonly call: HttpCall;
  body: number;
  /** `end` or `error` came. */
  readonly over: Promise<void>;
}

type Act = (event: string, call: HttpCall) => boolean | undefined;

/** Sends and notes each event once; `act` is called inside each callback. */
function send(pool: HttpPool, act: Act = () => undefined, request: Partial<OutgoingRequest> = {}): Heard {
  let finish = (): void => undefined;
  const over = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const events: string[] = [];
  const note = (event: string): boolean => {
    if (events.at(-1) !== event) events.push(event);
    return act(event, heard.call) ?? true;
  };
  const handler: HttpResponseReceiver = {
    head: () => void note("head"),
    data(chunk) {
      heard.body += chunk.length;
      return note("data");
    },
    end() {
      finish();
      note("end");
    },
    fail(error) {
      finish();
      note(`error ${error.kind}`);
    },
  };
  const headers = HeaderList.of({ host: "a" });
  const call = pool.send({ method: "GET", path: "/", headers, ...request }, handler);
  // Nothing may have been called by now: `heard` does not exist yet.
  const heard: Heard = { events, call, body: 0, over };
  return heard;
}

/** Long enough for anything that is on its way. */
async function someTurns(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}

test("a whole answer: head, data, end, and the connection is kept", async (t) => {
  const { pool } = await serve(t);
  const heard = send(pool);
  await heard.over;
  assert.deepEqual([heard.events, heard.body], [["head", "data", "end"], BODY.length]);
  assert.equal(heard.call.isOver, true);
  await someTurns();
  assert.deepEqual(pool.connections(), { open: 1, idle: 1 });
});

const unsendable: [name: string, request: Partial<OutgoingRequest>][] = [
  ["a header with a line break", { headers: new HeaderList(["host", "a", "x-a", "b\r\nc: d"]) }],
  ["a path with a space", { path: "/a b" }],
];
for (const [name, request] of unsendable) {
  for (const isWarm of [false, true]) {
    test(`${name} is an error after send has returned, ${isWarm ? "on a kept connection" : "on a new one"}`, async (t) => {
      const { pool } = await serve(t);
      if (isWarm) {
        await send(pool).over;
        await someTurns();
      }
      const heard = send(pool, undefined, request);
      await heard.over;
      assert.deepEqual(heard.events, ["error request"]);
    });
  }
}

test("a body that was destroyed before it was sent is an error after send has returned", async (t) => {
  const { pool } = await serve(t, "");
  await someTurns();
  const body = Readable.from([]);
  body.destroy();
  const heard = send(pool, undefined, { method: "POST", body });
  await heard.over;
  assert.deepEqual(heard.events, ["error request"]);
});

for (const where of ["at once", "head", "data"]) {
  test(`abort ${where === "at once" ? where : `inside ${where}`}: nothing is called after it, and the connection closes`, async (t) => {
    const { pool, closed } = await serve(t);
    const heard = send(pool, (event, call) => {
      if (event === where) call.abort();
      return false;
    });
    if (where === "at once") heard.call.abort();
    // A call that never got its connection has none to close.
    if (where !== "at once") await closed(1);
    await someTurns();
    const expected: Record<string, string[]> = { "at once": [], head: ["head"], data: ["head", "data"] };
    assert.deepEqual(heard.events, expected[where]);
    assert.deepEqual(pool.connections(), { open: 0, idle: 0 });
    heard.call.abort();
    heard.call.resume();
  });
}

for (const where of ["head", "data", "end", "error internal"]) {
  test(`an exception inside ${where} fails its own call only`, async (t) => {
    const { pool, closed } = await serve(t);
    const surfaced: Error[] = [];
    process.setUncaughtExceptionCaptureCallback((error) => void surfaced.push(error));
    t.after(() => process.setUncaughtExceptionCaptureCallback(null));
    const other = send(pool);
    const heard = send(pool, (event) => {
      if (event === where || (where === "error internal" && event === "head")) throw new Error(`a defect in ${event}`);
      return true;
    });
    await Promise.all([heard.over, other.over]);
    if (where !== "end") await closed(1);
    await someTurns();
    const before =
      where === "error internal"
        ? ["head"]
        : ["head", "data", "end"].slice(0, ["head", "data", "end"].indexOf(where) + 1);
    assert.deepEqual(heard.events, [...before, "error internal"]);
    assert.deepEqual(other.events, ["head", "data", "end"]);
    const untold = surfaced.map(({ message }) => message);
    assert.deepEqual(untold, where === "error internal" ? ["a defect in error internal"] : []);
    const next = send(pool);
    await next.over;
    assert.equal(next.body, BODY.length);
  });
}

test("resume inside data counts although data then wants to pause", async (t) => {
  const { pool } = await serve(t);
  const heard = send(pool, (event, call) => {
    if (event !== "data") return true;
    call.resume();
    return false;
  });
  await heard.over;
  assert.equal(heard.body, BODY.length);
});

test("the handle of a call that is over does not touch the next call on its connection", async (t) => {
  const { pool } = await serve(t);
  const first = send(pool);
  await first.over;
  await someTurns();
  const second = send(pool);
  first.call.abort();
  first.call.resume();
  await second.over;
  assert.deepEqual([second.events, second.body], [["head", "data", "end"], BODY.length]);
});
