/**
 * Backends that are gone, slow, broken or hostile: the client gets an answer that says whose fault it is, and never
 * somebody else's answer.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { createServer as createHttpServer, type RequestListener } from "node:http";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { rawBackend } from "../support/http1/raw-backend.ts";
import { openRawClient, rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

const config = (host: string, more = ""): string =>
  `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${host}" }]${more === "" ? "" : `, ${more}`} }]\n`;

test("a backend that refuses connections is 502 backend_unavailable, at once and without a repetition [R1]", async (t) => {
  const gateway = await gatewayFor(t, config("127.0.0.1:1"));
  const response = await fetch(gateway.url(), { method: "POST", body: "x" });
  assert.equal(response.status, 502);
  assert.equal(response.headers.get("x-gateway-error"), "backend_unavailable");
  assert.equal(await response.text(), "the backend could not be reached");
  assert.match(await gateway.logged("error=backend_unavailable"), /reason=.*ECONNREFUSED/);
});

test("a backend that never answers is 504 backend_timeout after the default of 60 s, and its connection is closed [R3]", async (t) => {
  const clock = fakeClock();
  let closed = false;
  const arrived = withResolvers();
  const backend = await backendFor(t, (req) => {
    req.socket.on("close", () => {
      closed = true;
    });
    arrived.resolve(undefined);
  });
  const gateway = await gatewayFor(t, config(backend.host), { clock });
  const answer = fetch(gateway.url());
  await arrived.promise;
  await clock.advance(59_999);
  assert.equal(closed, false);
  await clock.advance(2);
  const response = await answer;
  assert.equal(response.status, 504);
  assert.equal(response.headers.get("x-gateway-error"), "backend_timeout");
  await eventually("the backend's connection is closed", () => closed);
});

test("a backend that neither accepts nor refuses a connection is 504 after 10 s [R2]", async (t) => {
  const clock = fakeClock();
  const gateway = await gatewayFor(t, config(`127.0.0.1:${await blackHole(t)}`), { clock });
  const idle = clock.pending();
  const answer = fetch(gateway.url());
  await eventually("the attempt is under way", () => clock.pending() > idle + 1);
  await clock.advance(10_001);
  const response = await answer;
  assert.equal(response.status, 504);
  assert.equal(response.headers.get("x-gateway-error"), "backend_timeout");
});

const broken: [name: string, bytes: string][] = [
  ["no HTTP at all", "SSH-2.0-OpenSSH\r\n\r\n"],
  [
    "a content-length and chunks",
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  ],
  ["two content-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"],
  ["a content-length that is no number", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok"],
  ["a coding that we do not know", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok"],
  ["a header with a NUL", "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok"],
  ["a header with a control character", "HTTP/1.1 200 OK\r\nX: a\x01b\r\nContent-Length: 2\r\n\r\nok"],
  ["a header without a colon", "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n"],
  ["a folded header", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok"],
  ["a head of 40 KB", `HTTP/1.1 200 OK\r\nX: ${"a".repeat(40_000)}\r\n\r\n`],
  ["an unexpected upgrade", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
  ["an endless row of interim answers", "HTTP/1.1 100 Continue\r\n\r\n".repeat(200)],
  ["a status of two digits", "HTTP/1.1 20 OK\r\n\r\n"],
  ["HTTP/2.0", "HTTP/2.0 200 OK\r\n\r\n"],
];
for (const [name, bytes] of broken) {
  test(`a backend that answers with ${name} is 502 backend_response_invalid [R5]`, async (t) => {
    const backend = await rawBackend(t, (socket) => socket.write(Buffer.from(bytes, "latin1")));
    const gateway = await gatewayFor(t, config(backend.host));
    const response = await fetch(gateway.url());
    assert.equal(response.status, 502);
    assert.equal(response.headers.get("x-gateway-error"), "backend_response_invalid");
    assert.ok(!gateway.log().some((line) => line.includes("defect")));
  });
}

test("a backend that closes without an answer is 502", async (t) => {
  const backend = await rawBackend(t, (socket) => socket.end());
  const gateway = await gatewayFor(t, config(backend.host));
  assert.equal(
    (await fetch(gateway.url(), { method: "POST", body: "x" })).headers.get("x-gateway-error"),
    "backend_response_invalid",
  );
});

test("interim answers of the backend stay between it and us", async (t) => {
  const backend = await rawBackend(t, (socket) =>
    socket.write(`HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n${OK}`),
  );
  const gateway = await gatewayFor(t, config(backend.host));
  const answer = await rawRequest(gateway.port(), requestText("GET / HTTP/1.1"));
  assert.deepEqual(answer.statuses, [200]);
  assert.match(answer.text, /ok$/);
});

test("an answer that ends with the connection is passed on whole", async (t) => {
  const backend = await rawBackend(t, (socket) => socket.end("HTTP/1.0 200 OK\r\nX-Old: 1\r\n\r\nuntil the end"));
  const gateway = await gatewayFor(t, config(backend.host));
  const response = await fetch(gateway.url());
  assert.equal(response.headers.get("x-old"), "1");
  assert.equal(await response.text(), "until the end");
});

test("bytes that nobody asked for never become the answer to another request [V21]", async (t) => {
  const unasked = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen";
  // The first answer is followed by a second one in the same packet, the second one by another when it has arrived.
  const backend = await rawBackend(t, (socket, count) => void socket.write(count === 0 ? OK + unasked : OK));
  const gateway = await gatewayFor(t, config(backend.host));
  const ask = async (): Promise<void> => assert.equal(await (await fetch(gateway.url())).text(), "ok");
  const closed = async (index: number): Promise<void> => {
    const socket = backend.connections[index] as Socket;
    if (!socket.closed) await new Promise((resolve) => socket.once("close", resolve));
  };
  await ask();
  await closed(0);
  await ask();
  backend.connections[1]?.write(unasked);
  await closed(1);
  for (let i = 0; i < 3; i++) await ask();
  assert.equal(backend.connections.length, 3);
});

test("an encoded answer is passed on as it is, however deep its codings [V19]", async (t) => {
  const coding = Array.from({ length: 1000 }, () => "gzip").join(",");
  const backend = await rawBackend(t, (socket) =>
    socket.write(`HTTP/1.1 200 OK\r\nContent-Encoding: ${coding}\r\nContent-Length: 2\r\n\r\nok`),
  );
  const gateway = await gatewayFor(t, config(backend.host));
  const answer = await rawRequest(gateway.port(), requestText("GET / HTTP/1.1"));
  assert.match(answer.text, /ok$/);
});

for (const [method, status] of [
  ["GET", 200],
  ["POST", 502],
] as const) {
  test(`a kept connection that the backend has closed under us: ${method} ends with ${status} [R6]`, async (t) => {
    // Every connection serves one request; the second one on it meets a closed door.
    const served = new Set<Socket>();
    let requests = 0;
    const backend = await rawBackend(t, (socket) => {
      requests += 1;
      if (served.has(socket)) socket.destroy();
      else socket.write(OK);
      served.add(socket);
    });
    const gateway = await gatewayFor(t, config(backend.host));
    assert.equal((await fetch(gateway.url())).status, 200);
    const second = await fetch(gateway.url(), { method, ...(method === "POST" ? { body: "once" } : {}) });
    assert.equal(second.status, status);
    assert.equal(requests, method === "GET" ? 3 : 2, "a POST is never sent twice");
  });
}

test("connections to a backend are kept and used again", async (t) => {
  const backend = await rawBackend(t, (socket) => socket.write(OK));
  const gateway = await gatewayFor(t, config(backend.host));
  for (let i = 0; i < 10; i++) await (await fetch(gateway.url())).text();
  assert.equal(backend.connections.length, 1);
});

test("a connection whose answer came before the whole request is not used again", async (t) => {
  let early = true;
  const backend = await backendFor(t, (req, res) => {
    if (early && req.method === "POST") {
      res.end("early");
      return;
    }
    req.resume().on("end", () => res.end("late"));
  });
  const gateway = await gatewayFor(t, config(backend.host));
  const client = openRawClient(gateway.port());
  client.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until("early");
  client.close();
  early = false;
  assert.equal(await (await fetch(gateway.url())).text(), "late");
});

test("a unix socket is a backend", async (t) => {
  const path = `/tmp/gateway-test-${process.pid}.sock`;
  rmSync(path, { force: true });
  const answer: RequestListener = (req, res) => void res.end(`${req.headers.host} ${req.url}`);
  const server = createHttpServer(answer);
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const gateway = await gatewayFor(t, config(`unix:${path}`));
  const answered = await rawRequest(gateway.port(), requestText("GET /x HTTP/1.1"));
  assert.match(answered.text, /gateway\.test \/x/);
  const old = await rawRequest(gateway.port(), "GET /y HTTP/1.0\r\n\r\n");
  assert.match(old.text, /localhost \/y/);
});

test("a unix socket that is not there is 502", async (t) => {
  const gateway = await gatewayFor(t, config("unix:/tmp/no-such-socket"));
  assert.equal((await fetch(gateway.url())).headers.get("x-gateway-error"), "backend_unavailable");
});

test("no route is 404 route_not_found, and the log says what was tried", async (t) => {
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }\nroutes: [{ name: only, matches: [{ path: { exact: /a } }] }]\n`,
  );
  const response = await fetch(`${gateway.url()}/b`);
  assert.equal(response.status, 404);
  assert.equal(response.headers.get("x-gateway-error"), "route_not_found");
  assert.match(await gateway.logged("error=route_not_found"), /only/);
});

test("weights share the requests, and a weight of 0 gets none [S2.1-22]", async (t) => {
  const counts = [0, 0, 0];
  const hosts: string[] = [];
  for (const i of [0, 1, 2]) {
    const backend = await backendFor(t, (_req, res) => {
      counts[i] = (counts[i] ?? 0) + 1;
      res.end();
    });
    hosts.push(backend.host);
  }
  let turn = 0;
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes: [{ backends: [{ host: "${hosts[0]}", weight: 3 }, { host: "${hosts[1]}" }, { host: "${hosts[2]}", weight: 0 }] }]`,
    { random: () => (turn++ % 4) / 4 },
  );
  for (let i = 0; i < 20; i++) await (await fetch(gateway.url())).text();
  assert.deepEqual(counts, [15, 5, 0]);
});

test("all weights 0, or no backend, is 500 no_backend", async (t) => {
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes: [{ matches: [{ path: { exact: /zero } }], backends: [{ host: "127.0.0.1:1", weight: 0 }] }, {}]`,
  );
  for (const path of ["/zero", "/none"])
    assert.equal((await fetch(gateway.url() + path)).headers.get("x-gateway-error"), "no_backend");
});

/** A port whose listener is stopped while its queue is full: connections to it hang. */
async function blackHole(t: TestContext): Promise<number> {
  const script =
    'const s = require("net").createServer().listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => console.log(s.address().port))';
  const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "ignore"] });
  t.after(() => void child.kill("SIGKILL"));
  const port = Number(await new Promise((resolve) => child.stdout.once("data", resolve)));
  child.kill("SIGSTOP");
  const fillers = Array.from({ length: 5 }, () => connect(port, "127.0.0.1").on("error", () => undefined));
  t.after(() => {
    for (const filler of fillers) filler.destroy();
  });
  // The queue takes one more than its length; who comes after these two hangs.
  await Promise.all(fillers.slice(0, 2).map((filler) => new Promise((resolve) => filler.once("connect", resolve))));
  return port;
}

function withResolvers(): { promise: Promise<unknown>; resolve(value: unknown): void } {
  let resolve: (value: unknown) => void = () => undefined;
  const promise = new Promise((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
