import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { armTrace, messagesOf, pathOf, traceOf } from "../support/trace.ts";

let backend: TestBackend;
let gateway: TestGateway;
before(async () => {
  backend = await startBackend();
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes: [{ name: all, backends: [{ host: "${backend.host}" }] }]
`);
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

const get = (path: string) => fetch(`${gateway.url()}${path}`).then((response) => response.text());

test("GET and POST both arm a trace; the first bytes are a comment", async () => {
  for (const method of ["GET", "POST"]) {
    const trace = await armTrace(gateway, "", method);
    await get("/");
    assert.ok((await trace.events).length > 5);
  }
});

test("the stream is server-sent events and ends with the request [S4.2-2] [S4.2-17]", async () => {
  const trace = await armTrace(gateway);
  await get("/");
  const text = await trace.text;
  assert.match(text, /^: armed[^\n]*\n\n/);
  assert.ok(text.split("\n").every((line) => line === "" || line.startsWith(": ") || line.startsWith("data: {")));
});

test("an expression waits for a request that matches and lets others pass", async () => {
  const trace = await armTrace(gateway, `?expression=${encodeURIComponent('request.path == "/wanted"')}`);
  await get("/other");
  await get("/wanted");
  assert.equal(pathOf(await trace.events), "/wanted");
});

const badExpressions = [
  { expression: "request.path ==", says: /invalid expression: / },
  { expression: "jwt.sub == 'a'", says: /`jwt` is not known yet when a request arrives/ },
  { expression: "request.body == ''", says: /`request.body` is not known yet/ },
  { expression: "nothing.here", says: /invalid expression: / },
];
for (const { expression, says } of badExpressions) {
  test(`the expression ${expression} is refused with 400`, async () => {
    const response = await fetch(`${gateway.adminUrl}/debug/trace?expression=${encodeURIComponent(expression)}`);
    assert.equal(response.status, 400);
    assert.match(await response.text(), says);
  });
}

for (const count of ["0", "-1", "1001", "x", "1.5"]) {
  test(`count=${count} is refused with the range`, async () => {
    const response = await fetch(`${gateway.adminUrl}/debug/trace?count=${count}`);
    assert.equal(response.status, 400);
    assert.match(await response.text(), /count must be a whole number from 1 to 1000/);
  });
}

test("count traces several requests, each event with the id of its request", async () => {
  const trace = await armTrace(gateway, "?count=2");
  for (const id of ["one", "two"])
    await fetch(gateway.url(), { headers: { "x-request-id": id } }).then((response) => response.text());
  const events = await trace.events;
  assert.deepEqual([...new Set(events.map(({ requestId }) => requestId))], ["one", "two"]);
  assert.equal(messagesOf(events, "requestFinished").length, 2);
});

test("several clients wait in turn: each gets another request", async () => {
  const [first, second] = [await armTrace(gateway), await armTrace(gateway)];
  await get("/first");
  await get("/second");
  assert.deepEqual([pathOf(await first.events), pathOf(await second.events)], ["/first", "/second"]);
});

test("the ninth client gets 429, and a place that is given up can be taken [N8]", async () => {
  const traces = await Promise.all(Array.from({ length: 8 }, () => armTrace(gateway)));
  const refused = await fetch(`${gateway.adminUrl}/debug/trace`);
  assert.equal(refused.status, 429);
  assert.match(await refused.text(), /8 traces are open already/);
  for (const trace of traces) trace.cancel();
  for (;;) {
    const again = await fetch(`${gateway.adminUrl}/debug/trace`, { method: "HEAD" });
    if (again.status === 200) break;
    await again.text();
  }
  assert.ok((await traceOf(gateway, () => get("/"))).length > 0);
});

test("a HEAD request takes no place", async () => {
  for (let i = 0; i < 20; i++) await fetch(`${gateway.adminUrl}/debug/trace`, { method: "HEAD" });
  const trace = await armTrace(gateway);
  await get("/");
  assert.ok((await trace.events).length > 0);
});

test("a client that vanishes does not take the next request", async () => {
  const gone = await armTrace(gateway);
  gone.cancel();
  const stays = await armTrace(gateway);
  const before = await fetch(`${gateway.adminUrl}/debug/trace?count=0`);
  await before.text();
  await get("/a");
  await get("/b");
  assert.ok((await stays.events).length > 0);
});

test("a reader that never reads slows nothing: requests go on and events are dropped with a count [R41]", async () => {
  const { port, hostname } = new URL(gateway.adminUrl);
  const socket = connect(Number(port), hostname);
  socket.write("GET /debug/trace?count=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n");
  await once(socket, "data");
  socket.pause();
  const body = "x".repeat(60_000);
  for (let i = 0; i < 200; i++) {
    const response = await fetch(gateway.url(), { method: "POST", body });
    assert.equal(response.status, 200);
    await response.arrayBuffer();
  }
  const { external, heap } = (await (await fetch(`${gateway.adminUrl}/memory`)).json()) as {
    external: { bytes: number };
    heap: { usedBytes: number };
  };
  assert.ok(external.bytes > 0 && heap.usedBytes > 0);
  // Now it reads again: what was lost is counted.
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  socket.resume();
  while (!text.includes(": dropped")) {
    await get("/wake-up");
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.match(text, /: dropped \d+ events: the client reads too slowly/);
  socket.destroy();
});

test("while nobody watches, a request has no trace and no events are built", async () => {
  const call = request(gateway.url());
  call.end();
  const [response] = await once(call, "response");
  response.resume();
  await once(response, "end");
  assert.equal(response.statusCode, 200);
});
