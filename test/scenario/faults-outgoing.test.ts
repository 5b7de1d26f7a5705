/**
 * What the gateway itself asks for (rows K1 and R45 of the threat table): small answers within a time, no redirects,
 * and names that change, fail or hang.
 */

import assert from "node:assert/strict";
import type { RequestListener } from "node:http";
import { type TestContext, test } from "node:test";
import { Owner } from "../../src/base/owner.ts";
import { peerInput } from "../../src/base/peer-inputs.ts";
import { openFetcher } from "../../src/http/client/fetcher.ts";
import { openHttpPool } from "../../src/http/client/http-pool.ts";
import { EgressGuard } from "../../src/http/egress-guard.ts";
import type { FetchError } from "../../src/http/fetch.ts";
import { HeaderList } from "../../src/http/headers.ts";
import type { Resolve } from "../../src/http/lookup.ts";
import { eventually } from "../support/eventually.ts";
import { type FakeClock, fakeClock } from "../support/fake-clock.ts";
import { backendFor } from "../support/scenario.ts";

const INPUT = peerInput("alert-service/response").upTo(50_000);

async function fetcherFor(t: TestContext, listener: RequestListener) {
  const clock = fakeClock();
  const fetcher = openFetcher(clock, EgressGuard.for("configuration"));
  t.after(() => fetcher.close());
  const backend = await backendFor(t, listener);
  const ask = (path = "/") =>
    fetcher.of(Owner.standalone)({ url: `http://${backend.host}${path}`, timeoutMs: 5_000, input: INPUT });
  return { clock, ask };
}

for (const host of ["localhost", "127.0.0.1"])
  test(`${host} is refused where only addresses of the internet are allowed, when the connection is opened`, async (t) => {
    const fetcher = openFetcher(fakeClock(), EgressGuard.for("configuration"));
    t.after(() => fetcher.close());
    let requests = 0;
    const backend = await backendFor(t, (_req, res) => {
      requests += 1;
      res.end();
    });
    const request = { url: `http://${host}:${backend.port}/`, timeoutMs: 5_000, input: INPUT };
    await assert.rejects(fetcher.of(Owner.standalone)({ ...request, egress: EgressGuard.for("server") }), {
      reason: "refused",
    });
    assert.equal(requests, 0);
    assert.equal(
      (await fetcher.of(Owner.standalone)({ ...request, egress: EgressGuard.for("privateServer") })).status,
      200,
    );
    // A connection that another request opened is not reused.
    await assert.rejects(fetcher.of(Owner.standalone)({ ...request, egress: EgressGuard.for("server") }), {
      reason: "refused",
    });
    assert.equal(requests, 1);
    await assert.rejects(
      fetcher.of(Owner.standalone)({
        ...request,
        egress: EgressGuard.for("privateServer").and(EgressGuard.for("document")),
      }),
      { reason: "refused" },
    );
  });

for (const announced of [true, false]) {
  const how = announced ? "with" : "without";
  test(`an answer ${how} a length may have the limit to the byte, not one more`, async (t) => {
    const { ask } = await fetcherFor(t, (req, res) => {
      const length = INPUT.maxBytes + Number(req.url?.slice(1));
      if (announced) res.setHeader("content-length", length);
      res.write(Buffer.alloc(length - 10));
      res.end(Buffer.alloc(10));
    });
    assert.equal((await ask("/0")).body.length, INPUT.maxBytes);
    await assert.rejects(ask("/1"), { reason: "too-large", message: "the response is larger than 50000 bytes" });
  });
}

test("an answer without an end is cut off at the limit, and the next one is not touched by it", async (t) => {
  let [sent, isCut] = [0, false];
  const { ask } = await fetcherFor(t, (req, res) => {
    if (req.url === "/small") {
      res.end("small");
      return;
    }
    res.once("close", () => {
      isCut = true;
    });
    const more = (): void => {
      while (!res.destroyed && res.write(Buffer.alloc(16_384))) sent += 16_384;
      res.once("drain", more);
    };
    more();
  });
  await assert.rejects(ask(), { reason: "too-large" });
  await eventually("the sender was cut off", () => isCut);
  assert.ok(sent < 50_000_000, `${sent} bytes`);
  assert.equal((await ask("/small")).body.toString(), "small");
});

test("an answer that takes longer than its time is given up, also one that drips", async (t) => {
  let [arrived, closed] = [0, 0];
  const { clock, ask } = await fetcherFor(t, (req, res) => {
    arrived += 1;
    res.once("close", () => {
      closed += 1;
    });
    if (req.url === "/drips") res.write("x");
  });
  for (const [i, path] of ["/silent", "/drips"].entries()) {
    const failed = assert.rejects(ask(path), (error: FetchError) => error.reason === "timeout");
    await eventually("it is asked", () => arrived === i + 1);
    await clock.advance(5_000);
    await failed;
    await eventually("the connection is closed", () => closed === i + 1);
  }
});

test("a redirect is an answer like any other", async (t) => {
  const asked: string[] = [];
  const { ask } = await fetcherFor(t, (req, res) => {
    asked.push(req.url ?? "");
    res.writeHead(302, { location: "/elsewhere" }).end();
  });
  assert.equal((await ask()).status, 302);
  assert.deepEqual(asked, ["/"]);
});

/** A pool for a name that only the test's resolver knows; `answers` are used up in order, the last stays. */
async function poolFor(t: TestContext) {
  const clock = fakeClock();
  const pending: Parameters<Resolve>[1][] = [];
  const backend = await backendFor(t, (req, res) => {
    res.setHeader("connection", "close");
    res.end(req.socket.localAddress);
  });
  const resolve: Resolve = (_name, done) => void pending.push(done);
  const pool = openHttpPool(
    { protocol: "http", egress: EgressGuard.for("configuration"), host: "backend.test", port: backend.port },
    clock,
    resolve,
  );
  t.after(() => pool.close());
  const ask = (): Promise<string> =>
    new Promise((answered, failed) => {
      let text = "";
      pool.send(
        { method: "GET", path: "/", headers: HeaderList.of({ host: "backend.test" }) },
        {
          head: () => undefined,
          data: (chunk) => {
            text += chunk.toString();
            return true;
          },
          end: () => answered(text),
          fail: failed,
        },
      );
    });
  const known = (address: string): void => next()(null, [{ address, family: 4 }]);
  const fails = (code: string): void => next()(Object.assign(new Error(`getaddrinfo ${code}`), { code }), []);
  const next = (): Parameters<Resolve>[1] => {
    const done = pending.shift();
    if (!done) throw new Error("nobody asked for the name");
    return done;
  };
  return { clock, ask, known, fails, pending };
}

/** What a call comes to once the resolver has said something. */
async function after(answer: Promise<string>, say: () => void): Promise<string> {
  answer.catch(() => undefined);
  await new Promise((resolve) => setImmediate(resolve));
  say();
  return answer;
}

test("a name is looked up for each new connection, and its new address is used [R45]", async (t) => {
  const { ask, known } = await poolFor(t);
  assert.equal(await after(ask(), () => known("127.0.0.1")), "127.0.0.1");
  await assert.rejects(
    after(ask(), () => known("127.0.0.2")),
    /ECONNREFUSED 127\.0\.0\.2/,
    "the server of the test listens on the first address only",
  );
});

test("a resolver that fails leaves the last good address in use, for an hour [R45]", async (t) => {
  const { clock, ask, known, fails } = await poolFor(t);
  await assert.rejects(
    after(ask(), () => fails("EAI_AGAIN")),
    /EAI_AGAIN/,
  );
  assert.equal(await after(ask(), () => known("127.0.0.1")), "127.0.0.1");
  assert.equal(await after(ask(), () => fails("EAI_AGAIN")), "127.0.0.1");
  await clock.advance(3_599_000);
  assert.equal(await after(ask(), () => fails("EAI_AGAIN")), "127.0.0.1");
  await clock.advance(2_000);
  await assert.rejects(
    after(ask(), () => fails("EAI_AGAIN")),
    /EAI_AGAIN/,
  );
});

test("a name that no longer exists is believed: its address may be somebody else's", async (t) => {
  const { ask, known, fails } = await poolFor(t);
  assert.equal(await after(ask(), () => known("127.0.0.1")), "127.0.0.1");
  await assert.rejects(
    after(ask(), () => fails("ENOTFOUND")),
    /ENOTFOUND/,
  );
  await assert.rejects(
    after(ask(), () => fails("EAI_AGAIN")),
    /EAI_AGAIN/,
    "the address is forgotten",
  );
});

test("a resolver that hangs is waited for 5 s, once, and asked no second time meanwhile [R45]", async (t) => {
  const { clock, ask, known, pending } = await poolFor(t);
  const early = [ask(), ask(), ask()];
  for (const one of early) one.catch(() => undefined);
  await waitFor(clock, 4_999);
  assert.equal(pending.length, 1, "one question for three connections");
  await waitFor(clock, 1);
  for (const one of early) await assert.rejects(one, /no address of backend\.test within 5000 ms/);
  await assert.rejects(ask(), /no address of backend\.test within 5000 ms/);
  assert.equal(pending.length, 1);
  known("127.0.0.1");
  assert.equal(await after(ask(), () => known("127.0.0.1")), "127.0.0.1");
  const late = ask();
  await waitFor(clock, 5_000);
  assert.equal(await late, "127.0.0.1", "the last good address after 5 s");
  assert.equal(await ask(), "127.0.0.1", "and at once from then on");
  assert.equal(pending.length, 1);
});

async function waitFor(clock: FakeClock, ms: number): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  await clock.advance(ms);
}

const kept: { name: string; hint?: string; afterMs: number; connections: number }[] = [
  { name: "3.9 s old is used again", afterMs: 3_900, connections: 1 },
  { name: "4.4 s old is not, although no look at the clock came between", afterMs: 4_400, connections: 2 },
  { name: "1.5 s old is used again where the server says 2 s", hint: "timeout=2", afterMs: 1_500, connections: 1 },
  { name: "1.9 s old is not where the server says 2 s", hint: "timeout=2, max=100", afterMs: 1_900, connections: 2 },
  { name: "4.4 s old is not where the server says 60 s", hint: "timeout=60", afterMs: 4_400, connections: 2 },
];
for (const { name, hint, afterMs, connections } of kept) {
  test(`a kept connection that is ${name}`, async (t) => {
    const clock = fakeClock();
    const seen = new Set<unknown>();
    const backend = await backendFor(t, (req, res) => {
      seen.add(req.socket);
      // Node writes a hint of its own unless one is there.
      res.setHeader("keep-alive", hint ?? "none");
      res.setHeader("connection", "keep-alive");
      res.end("ok");
    });
    const { hostname, port } = new URL(`http://${backend.host}`);
    const pool = openHttpPool(
      { protocol: "http", egress: EgressGuard.for("configuration"), host: hostname, port: Number(port) },
      clock,
    );
    t.after(() => pool.close());
    const ask = async (): Promise<void> => {
      await new Promise<void>((resolve, reject) => {
        const handler = { head: () => undefined, data: () => true, end: () => resolve(), fail: reject };
        pool.send({ method: "GET", path: "/", headers: new HeaderList(["host", backend.host]) }, handler);
      });
      await eventually("the connection is free", () => pool.connections().idle === 1);
    };
    // Between two looks, so that the last one before the second request comes early.
    await clock.advance(500);
    await ask();
    await clock.advance(afterMs);
    await ask();
    assert.equal(seen.size, connections);
  });
}
