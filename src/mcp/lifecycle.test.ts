import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { type FakeClock, fakeClock } from "../../test/support/fake-clock.ts";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";
import type { ServerState } from "./server-side/server-state.ts";

async function withServer(
  options: { flags?: string[]; settings?: object; clock?: FakeClock },
  run: (served: ServedBackend, open: () => Promise<RawClient>) => Promise<void>,
): Promise<void> {
  const served = await serveMcp(
    { targets: [{ name: "odd", stdio: stdioFixture("odd-server", ...(options.flags ?? [])) }], ...options.settings },
    options.clock ? { clock: options.clock } : {},
  );
  const alive = setInterval(() => undefined, 60_000);
  try {
    await run(served, async () => {
      const client = rawClient(served.url);
      await client.initialize();
      return client;
    });
  } finally {
    const closing = served.close();
    // A clock that stands still would never come to the signals.
    if (options.clock) await options.clock.advance(10_000);
    await closing;
    clearInterval(alive);
    assert.deepEqual(served.tasks.report(), []);
    assert.equal(served.hub.children, 0);
  }
}

async function state(client: RawClient) {
  return JSON.parse((await client.call("state")).result.content[0].text);
}

test("after a server crash, each call gets an error with the reason, and the session continues [R8]", async () => {
  await withServer({}, async (_served, open) => {
    const client = await open();
    const first = await state(client);
    const waiting = Array.from({ length: 20 }, (_, i) =>
      client.post({ jsonrpc: "2.0", id: i, method: "tools/call", params: { name: "silent" } }),
    );
    await client.call("echo");
    const crashed = await client.call("crash");
    assert.equal(crashed.error.code, -32603);
    assert.match(crashed.error.message, /target "odd" was terminated by SIGKILL: about to crash/);
    for (const [i, { message }] of (await Promise.all(waiting)).entries()) {
      assert.equal(message.id, i);
      assert.equal(message.error.code, -32603);
    }
    const second = await state(client);
    assert.notEqual(second.pid, first.pid);
    assert.equal(second.initializedCount, 1);
  });
});

test("the client's settings are restored in the new process", async () => {
  await withServer({}, async (_served, open) => {
    const client = await open();
    await client.request("logging/setLevel", { level: "warning" });
    await client.request("resources/subscribe", { uri: "test://odd/a" });
    await client.request("resources/subscribe", { uri: "test://odd/b" });
    await client.request("resources/unsubscribe", { uri: "test://odd/b" });
    // A name beyond all use is passed on, and not remembered.
    await client.request("resources/subscribe", { uri: `test://odd/${"x".repeat(3_000)}` });
    await client.call("crash");
    const { logLevel, subscribed } = await state(client);
    assert.equal(logLevel, "warning");
    assert.deepEqual(subscribed, ["test://odd/a"]);
  });
});

test("a server that exits between calls is started again by the next", async () => {
  await withServer({}, async (served, open) => {
    const client = await open();
    const first = await state(client);
    await client.call("exit-later");
    await eventually("it is gone", () => served.hub.children === 0);
    assert.notEqual((await state(client)).pid, first.pid);
  });
});

test("a client that listens gets its server back without asking", async () => {
  await withServer({}, async (served, open) => {
    const client = await open();
    const general = await client.listen();
    await client.call("exit-later");
    await eventually("it is gone", () => served.hub.children === 0);
    await eventually("it is back", () => served.hub.children === 1);
    await client.call("notify", { method: "notifications/back" });
    assert.equal(
      (await general.next((message) => message.method === "notifications/back")).message.method,
      "notifications/back",
    );
  });
});

test("a server that cannot be restarted ends the session, so that the client initializes a new one", async () => {
  const clock = fakeClock();
  await withServer({ clock }, async (served, open) => {
    const client = await open();
    await client.call("crash");
    // From now on the target is another command: it fails at every start.
    const target = served.hub.targets[0] as unknown as { config: { stdio: { cmd: string } } };
    target.config.stdio.cmd = "/nonexistent/server";
    for (let attempt = 0; attempt < 3; attempt++) {
      const running = client.post({ jsonrpc: "2.0", id: attempt, method: "ping" });
      await settleUntil(clock, running);
      const { message } = await running;
      assert.match(message.error.message, /could not be started/);
    }
    assert.equal((await client.post({ jsonrpc: "2.0", id: 9, method: "ping" })).status, 404);
  });
});

test("a call to a server that does not respond times out and is canceled at the server [R13]", async () => {
  const clock = fakeClock();
  await withServer({ clock, settings: { requestTimeout: "30s" } }, async (_served, open) => {
    const client = await open();
    const running = client.post({ jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "silent" } });
    await client.call("echo");
    await clock.advance(29_000);
    assert.deepEqual((await state(client)).cancelled, []);
    await clock.advance(3_000);
    const { message } = await running;
    assert.equal(message.id, 5);
    assert.match(message.error.message, /did not respond within 30 s/);
    assert.equal((await state(client)).cancelled.length, 1);
  });
});

test("a connection without events is kept alive [R17]", async () => {
  const clock = fakeClock();
  await withServer({ clock }, async (_served, open) => {
    const client = await open();
    const general = await client.listen();
    const call = await Promise.all([
      client.stream({ jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "silent" } }),
      clock.advance(200),
    ]);
    await clock.advance(61_000);
    await client.call("echo");
    await eventually("both are kept alive", () => general.comments() >= 4 && call[0].comments() >= 4);
    general.close();
    call[0].close();
  });
});

test("an idle session ends with its process; a session with an open stream does not [R37]", async () => {
  const clock = fakeClock();
  await withServer({ clock, settings: { sessionIdleTtl: "30m" } }, async (served, open) => {
    const idle = await open();
    const used = await open();
    const listening = await open();
    const stream = await listening.listen();
    await clock.advance(29 * 60_000);
    await used.call("echo");
    await clock.advance(2 * 60_000);
    assert.equal((await idle.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
    assert.equal((await used.call("echo")).result.content[0].text, "");
    assert.equal((await listening.call("echo")).result.content[0].text, "");
    assert.equal(served.hub.sessions.size, 2);
    stream.close();
    await stream.ended;
    await clock.advance(62 * 60_000);
    assert.equal(served.hub.sessions.size, 0);
  });
});

test("sessions beyond the limit are rejected with 503 while all are in use [A12]", async () => {
  const clock = fakeClock();
  await withServer({ clock, settings: { maxSessions: 2, maxSessionsPerClient: 2 } }, async (served, open) => {
    const first = await open();
    const second = await open();
    const refused = await rawClient(served.url).initialize();
    assert.equal(refused.status, 503);
    assert.equal(refused.headers.get("retry-after"), "5");
    assert.match(refused.text, /limit of 2 MCP sessions/);
    // One that was not used for a while makes room; its client goes on when there is room again.
    await clock.advance(11_000);
    await second.call("echo");
    const third = await open();
    assert.equal((await third.call("echo")).result.content[0].text, "");
    assert.equal((await first.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 503);
    await clock.advance(11_000);
    assert.equal((await first.call("echo")).result.content[0].text, "");
  });
});

test("children beyond the limit are rejected with 503, and other sessions continue [A12]", async () => {
  await withServer({ settings: { maxChildren: 1 } }, async (served, open) => {
    const client = await open();
    const refused = await rawClient(served.url).initialize();
    assert.equal(refused.status, 503);
    assert.match(refused.message.error.message, /limit of 1 child processes/);
    assert.equal((await client.call("echo", { message: "still" })).result.content[0].text, "still");
    assert.equal(served.hub.sessions.size, 1);
  });
});

test("a client that leaves before its session is open leaves nothing behind", async () => {
  await withServer({ flags: ["--silent"] }, async (served) => {
    const abort = new AbortController();
    const body = JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {} },
    });
    const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
    const opening = fetch(served.url, { method: "POST", headers, body, signal: abort.signal });
    await eventually("the session opens", () => served.hub.sessions.size === 1);
    abort.abort();
    await assert.rejects(opening);
    await eventually("nothing is left", () => served.hub.sessions.size === 0 && served.hub.children === 0);
  });
});

test("another owner's session does not exist [A10]", async () => {
  await withServer({}, async (served, open) => {
    served.attributes = { jwt: { iss: "i", sub: "alice" } };
    const client = await open();
    served.attributes = { jwt: { iss: "i", sub: "bob" } };
    assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
    assert.equal((await client.listen()).status, 404);
    assert.equal(await client.delete(), 404);
    served.attributes = {};
    assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
    served.attributes = { jwt: { iss: "i", sub: "alice", iat: 2 } };
    assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 200);
  });
});

test("the admin interface sees sessions, their processes and what runs, but no session id", async () => {
  await withServer({}, async (served, open) => {
    const client = await open();
    const running = client.stream({ jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "silent" } });
    await client.call("stderr", { lines: 3 });
    const [backend] = served.tasks.report();
    assert.ok(backend);
    assert.equal(backend.kind, "mcp backend");
    const { servers, ...counts } = backend.detail as { servers: ServerState[] };
    assert.deepEqual(counts, { children: 1, sessions: 1 });
    assert.deepEqual(
      servers.map((server) => [server.state, server.sessions, server.lostSessions]),
      [["up", 1, 0]],
    );
    const [session] = backend.children ?? [];
    assert.equal(session?.kind, "mcp session");
    const detail = session?.detail as {
      client: unknown;
      calls: number;
      errors: number;
      pendingCalls: number;
      targets: { pid: number; memoryBytes: number; stderr: string[] }[];
    };
    assert.equal(detail.pendingCalls, 1);
    assert.deepEqual([detail.client, detail.calls, detail.errors], [{ name: "test", version: "1" }, 1, 0]);
    assert.equal(detail.targets[0]?.pid, (await state(client)).pid);
    if (process.platform === "linux") assert.ok((detail.targets[0]?.memoryBytes ?? 0) > 1_000_000);
    assert.equal(detail.targets[0]?.stderr.length, 3);
    assert.ok(!JSON.stringify(served.tasks.report()).includes(client.sessionId ?? "?"));
    await client.call("fail");
    const after = served.tasks.report()[0]?.children?.[0]?.detail as { calls: number; errors: number };
    assert.deepEqual([after.calls > detail.calls, after.errors], [true, 1]);
    (await running).close();
  });
});

test("a child gets only permitted environment variables and its own working directory [P2]", async () => {
  const served = await serveMcp(
    { targets: [{ name: "odd", stdio: { ...stdioFixture("odd-server"), env: { GIVEN: "1" }, cwd: "/tmp" } }] },
    { environment: { PATH: "/usr/bin:/bin", OPENAI_API_KEY: "s3cret", HTTPS_PROXY: "http://p" } },
  );
  const client = rawClient(served.url);
  await client.initialize();
  const { env, cwd } = await state(client);
  assert.deepEqual(
    env.filter((name: string) => !name.startsWith("__")),
    ["GIVEN", "HTTPS_PROXY", "PATH"],
  );
  assert.equal(cwd, "/tmp");
  await served.close();
});

test("a stubborn server is killed when its session ends [R9]", async () => {
  await withServer({ flags: ["--stubborn"] }, async (served, open) => {
    const client = await open();
    const { pid } = await state(client);
    await client.delete();
    await eventually("it is gone", () => served.hub.children === 0);
    assert.throws(() => execFileSync("ps", ["-p", String(pid)]));
  });
});

/** Moves the clock on until the promise has settled. */
async function settleUntil(clock: FakeClock, promise: Promise<unknown>): Promise<void> {
  let isSettled = false;
  void promise.finally(() => {
    isSettled = true;
  });
  await eventually("it has settled", async () => {
    await clock.advance(100);
    return isSettled;
  });
}
