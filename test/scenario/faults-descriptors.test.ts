/**
 * A gateway whose file descriptors are all in use: calls fail with a clear error, and the rest of the gateway works on,
 * because connections to servers, clients, and files have reserves.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { backendFor } from "../support/scenario.ts";

const LINUX = { skip: process.platform !== "linux" && "the limit is read from /proc" };
const MAX_OPEN_FILES = 256;
const SESSIONS = 5;
const STREAMS = 100;

function statusOf(session: ClientHttp2Session, path: string): Promise<number> {
  return new Promise((resolve) => {
    const stream = session.request({ ":path": path, ":authority": "a" });
    stream.on("response", (headers) => resolve(headers[":status"] ?? 0));
    stream.on("error", () => resolve(0));
    stream.resume();
    stream.end();
  });
}

/** `client` is the last part of the client's address. */
function openSession(t: TestContext, port: number, client = 1): ClientHttp2Session {
  const session = connectHttp2(`http://127.0.0.1:${port}`, {
    createConnection: () => connect({ port, host: "127.0.0.1", localAddress: `127.0.0.${client}` }),
  });
  session.on("error", () => undefined);
  t.after(() => session.destroy());
  return session;
}

/** Opens idle connections until the gateway closes them, from addresses of which each may have half of the places. */
async function fillWithClients(t: TestContext, ports: readonly number[]): Promise<Socket[]> {
  const sockets: Socket[] = [];
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  let closed = 0;
  for (let i = 0; i < 600; i++) {
    const port = ports[i % ports.length] as number;
    const socket = connect({ port, host: "127.0.0.1", localAddress: `127.0.0.${10 + (i % 20)}` });
    sockets.push(socket);
    socket.resume().on("error", () => undefined);
    socket.on("close", () => {
      closed += 1;
    });
    if (i % 50 === 49) await new Promise<void>((resolve) => socket.once("connect", resolve).once("close", resolve));
  }
  await eventually("the gateway closes connections", () => closed > 300);
  return sockets;
}

test("500 requests that each need a connection, with 256 files: some get 503, and all else works", LINUX, async (t) => {
  const held: ServerResponse[] = [];
  const slow = await backendFor(t, (_req, res) => void held.push(res));
  const other = await backendFor(t, (_req, res) => void res.end("ok"));
  const route = (path: string, host: string) => ({
    matches: [{ path: { pathPrefix: path } }],
    backends: [{ host }],
  });
  const config = {
    config: { adminAddr: "127.0.0.1:0", logging: { level: "info,access=off" } },
    gateways: {
      one: { port: 0, address: "127.0.0.1" },
      two: { port: 0, address: "127.0.0.1" },
      three: { port: 0, address: "127.0.0.1" },
    },
    routes: [route("/slow", slow.host), route("/", other.host)].map((one) => ({
      ...one,
      gateways: ["one", "two", "three"],
    })),
  };
  const file = configFile(t, JSON.stringify(config));
  const gateway = startGatewayProcess(t, ["-f", file], { maxOpenFiles: MAX_OPEN_FILES });
  const ports = await Promise.all(["one", "two", "three"].map((name) => gateway.port(name)));
  const admin = await gateway.adminUrl();
  const port = ports[0] as number;
  const descriptors = async (): Promise<number> => {
    const text = await (await fetch(`${admin}/metrics`)).text();
    return Number(/^process_open_fds (\d+)/m.exec(text)?.[1]);
  };

  // Each client may have only a part of the streams that would use all files.
  const sessions = Array.from({ length: SESSIONS }, (_, i) => openSession(t, port, 2 + i));
  const statuses = sessions.flatMap((session) => Array.from({ length: STREAMS }, () => statusOf(session, "/slow")));
  const settled: number[] = [];
  for (const status of statuses) void status.then((code) => settled.push(code));
  await eventually("all requests have a connection or 503", () => settled.length + held.length === SESSIONS * STREAMS);
  assert.ok(settled.length > 100 && settled.every((status) => status === 503), JSON.stringify(settled));
  assert.ok(held.length > 100, `${held.length} at the backend`);

  // Another backend has room, and new clients are accepted.
  assert.equal(await statusOf(openSession(t, port), "/other"), 200);
  const clients = await fillWithClients(t, ports);
  assert.ok((await descriptors()) <= MAX_OPEN_FILES - 4, `${await descriptors()} open files`);

  // The memory is measured, tasks are listed, and an edit of the configuration is loaded.
  const tasks = (await (await fetch(`${admin}/debug/tasks`)).json()) as { process: { rssBytes: number } };
  assert.ok(tasks.process.rssBytes > 0);
  writeFileSync(file, readFileSync(file, "utf8").replace('"info,access=off"', '"debug,access=off"'));
  await gateway.logged("configuration loaded generation=2");

  for (const client of clients) client.destroy();
  for (const res of held) res.end("ok");
  await eventually("the held requests have responses", () => settled.length === SESSIONS * STREAMS);
  await eventually(
    "connections are opened again",
    async () => (await statusOf(sessions[1] as ClientHttp2Session, "/")) === 200,
  );
  gateway.child.kill("SIGTERM");
  assert.deepEqual([(await gateway.exited).code, (await gateway.exited).stderr], [0, ""]);
  const problems = gateway
    .stdout()
    .split("\n")
    .filter((line) => / error /.test(line));
  assert.deepEqual(problems, []);
});

test("one client cannot use the files of others with HTTP/2 streams", LINUX, async (t) => {
  const held: ServerResponse[] = [];
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/slow") held.push(res);
    else res.end("ok");
  });
  const config = {
    config: { adminAddr: "off", logging: { level: "info" } },
    gateways: { one: { port: 0, address: "127.0.0.1" }, two: { port: 0, address: "127.0.0.1" } },
    routes: [{ gateways: ["one", "two"], backends: [{ host: backend.host }] }],
  };
  const file = configFile(t, JSON.stringify(config));
  const gateway = startGatewayProcess(t, ["-f", file], { maxOpenFiles: MAX_OPEN_FILES });
  const ports = await Promise.all(["one", "two"].map((name) => gateway.port(name)));
  const limit = Number(/accepts fewer connections.* connections=(\d+)/.exec(gateway.stdout())?.[1]);
  assert.ok(limit > 20 && limit < STREAMS, `${limit} connections`);

  const greedy = Array.from({ length: SESSIONS }, (_, i) => openSession(t, ports[i % 2] as number, 2));
  const settled: number[] = [];
  const asked = greedy.flatMap((session) => Array.from({ length: STREAMS }, () => statusOf(session, "/slow")));
  for (const status of asked) void status.then((code) => settled.push(code));
  await eventually("all streams have a connection or 503", () => settled.length + held.length === SESSIONS * STREAMS);
  assert.deepEqual([held.length, new Set(settled)], [limit, new Set([503])]);
  assert.match(await gateway.logged("the client has too many open HTTP/2 streams"), /status=503/);

  for (const port of ports) {
    const other = openSession(t, port, 3);
    const statuses = await Promise.all(Array.from({ length: 16 }, () => statusOf(other, "/fast")));
    assert.deepEqual(new Set(statuses), new Set([200]));
    assert.equal(await statusOf(openSession(t, port, 2), "/fast"), 503);
  }

  for (const res of held) res.end("ok");
  await Promise.all(asked);
  assert.equal(await statusOf(openSession(t, ports[0] as number, 2), "/fast"), 200);
  assert.ok(!gateway.stdout().includes("too many files are open"));
});
