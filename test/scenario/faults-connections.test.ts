/**
 * Many connections at once (rows L15, R29, R30, R35 and R46 of the threat table): too many are closed, idle and slow
 * ones cost little, few files are enough to go on, and one loud stream does not drown the others.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { get, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, behindGateway } from "../support/scenario.ts";

interface Memory {
  readonly process: { readonly rssBytes: number };
  readonly parts: { readonly connections: { readonly connections: number; readonly requests: number } };
}

async function memoryOf(adminUrl: string): Promise<Memory> {
  return (await (await fetch(`${adminUrl}/memory`)).json()) as Memory;
}

/** In groups, because many connects at once would only test the accept queue. */
async function connectMany(t: TestContext, port: number, count: number, firstBytes?: string): Promise<Socket[]> {
  const sockets: Socket[] = [];
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  while (sockets.length < count) {
    // Three addresses that send nothing else: each may have half of a listener's connections.
    const localAddress = `127.0.0.${2 + ((sockets.length / 100) % 3)}`;
    const group = Array.from({ length: Math.min(100, count - sockets.length) }, () =>
      connect({ port, host: "127.0.0.1", localAddress }),
    );
    sockets.push(...group);
    await Promise.all(
      group.map(
        (socket) =>
          new Promise<void>((resolve) => {
            socket.once("connect", () => {
              if (firstBytes !== undefined) socket.write(firstBytes);
              resolve();
            });
            socket.on("error", () => resolve());
          }),
      ),
    );
  }
  return sockets;
}

/** On a connection of its own, as a new client would come. */
function statusOf(port: number, path = "/"): Promise<number> {
  return new Promise((resolve, reject) => {
    get({ port, path, host: "127.0.0.1", agent: false }, (res) => {
      res.resume().once("end", () => resolve(res.statusCode ?? 0));
    }).once("error", reject);
  });
}

/** Also false when the connection is not accepted. */
function serves(port: number, path = "/"): Promise<boolean> {
  return statusOf(port, path).then(
    (status) => status === 200,
    () => false,
  );
}

/**
 * What a request takes on average: of the clock on the wall and the CPU time of all who take part the smaller one, so
 * that what other programs do meanwhile does not count. `pid`: the gateway, where it is another process.
 */
async function requestMs(count: number, once: () => Promise<unknown>, pid?: number): Promise<number> {
  const spentMs = (): number => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000 + (pid === undefined ? 0 : cpuMsOf(pid));
  };
  const began = { wall: performance.now(), cpu: spentMs() };
  for (let i = 0; i < count; i++) await once();
  return Math.min(performance.now() - began.wall, spentMs() - began.cpu) / count;
}

/** Linux counts in hundredths of a second; elsewhere the process counts as idle. */
function cpuMsOf(pid: number): number {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    const [user = 0, system = 0] = text
      .slice(text.lastIndexOf(")") + 2)
      .split(" ")
      .slice(11, 13)
      .map(Number);
    return (user + system) * 10;
  } catch {
    return 0;
  }
}

test("one connection too many is closed unread, the others go on, and one line says so [L15]", async (t) => {
  const { gateway, backend } = await behindGateway(t, undefined, "", { listenerLimits: { maxConnections: 20 } });
  const clients = Array.from({ length: 20 }, () => openRawClient(gateway.port()));
  const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const client of clients) client.write(request);
  await Promise.all(clients.map((client) => client.until("200 OK")));

  for (let i = 0; i < 5; i++) {
    const tooMany = openRawClient(gateway.port());
    tooMany.write(request);
    assert.equal((await tooMany.ended()).text, "");
  }
  assert.equal(backend.received.length, 20);
  assert.match(await gateway.logged("connections rejected"), /limit=20 refused=1/);
  assert.equal(gateway.log().filter((line) => line.includes("connections rejected")).length, 1);

  const [first, second] = clients;
  first?.write(request);
  await eventually("a connection that is open goes on", () => backend.received.length === 21);
  second?.close();
  await eventually("a place is free again", () => serves(gateway.port()));
  for (const client of clients) client.close();
});

test("1,500 clients that never finish their heads are all told and closed, and others are served beside them [R30]", {
  timeout: 600_000,
}, async (t) => {
  const { gateway } = await behindGateway(t, undefined, "", {
    listenerLimits: { headersTimeoutMs: 1_500, checkIntervalMs: 100 },
  });
  const aloneMs = await requestMs(30, () => statusOf(gateway.port()));
  const ended: string[] = [];
  const slow = await connectMany(t, gateway.port(), 1_500, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ");
  for (const socket of slow) {
    let text = "";
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
    });
    socket.once("close", () => ended.push(text));
  }
  const besideMs = await requestMs(30, async () => assert.equal(await statusOf(gateway.port()), 200));
  await eventually("all are closed", () => ended.length === slow.length);
  assert.ok(ended.every((text) => text.startsWith("HTTP/1.1 408 ")));
  await eventually("nothing is left of them", async () => {
    const { connections } = (await memoryOf(gateway.adminUrl)).parts;
    return connections.connections === 0;
  });
  assert.ok(besideMs < 50 + 5 * aloneMs, `${besideMs} ms, and ${aloneMs} ms alone`);
});

const IDLE = 10_000;
const PATIENT = fileURLToPath(new URL("../support/patient-listeners.js", import.meta.url));
const openFiles = Number(/^Max open files\s+(\d+)/m.exec(limitsText())?.[1] ?? 0);

test("10,000 idle connections take at most 150 MB, and a new request is answered among them [R29]", {
  timeout: 600_000,
  skip: openFiles < 2 * IDLE && `needs ${2 * IDLE} open files, ${openFiles} are allowed`,
}, async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("ok"));
  const gateway = startGatewayProcess(t, ["-f", configFile(t, proxy(backend.host))], {
    compiled: true,
    nodeFlags: ["--import", PATIENT],
  });
  const [port, adminUrl] = [await gateway.port(), await gateway.adminUrl()];
  const { pid } = gateway.child;
  const aloneMs = await requestMs(100, () => statusOf(port), pid);
  const before = await memoryOf(adminUrl);
  await connectMany(t, port, IDLE - 10);
  const answerMs = await requestMs(100, async () => assert.equal(await statusOf(port), 200), pid);
  const after = await memoryOf(adminUrl);
  assert.ok(after.parts.connections.connections >= IDLE - 10, `${after.parts.connections.connections}`);
  const grownMb = (after.process.rssBytes - before.process.rssBytes) / 1e6;
  assert.ok(grownMb < 150, `${grownMb} MB`);
  assert.ok(answerMs < 50 + 5 * aloneMs, `${answerMs} ms, and ${aloneMs} ms alone`);
});

test("with 256 open files it says so at the start, accepts what it can serve, and recovers [R35]", {
  skip: process.platform !== "linux" && "the limit is read from /proc",
}, async (t) => {
  const held: ServerResponse[] = [];
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/now") res.end("ok");
    else held.push(res);
  });
  const gateway = startGatewayProcess(t, ["-f", configFile(t, proxy(backend.host))], { maxOpenFiles: 256 });
  const port = await gateway.port();
  assert.match(gateway.stdout(), /ulimit -n.* openFiles=256 connections=80 wantedOpenFiles=20000/);

  const answers: string[] = [];
  const clients = await connectMany(t, port, 500);
  for (const client of clients) {
    client.on("data", (chunk: Buffer) => answers.push(chunk.toString("latin1")));
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  await eventually("80 are at the backend, the rest was closed", () => {
    return held.length === 80 && clients.filter(({ destroyed }) => destroyed).length === 420;
  });
  for (const res of held) res.end("ok");
  await eventually("all that were accepted are answered", () => answers.length === 80);
  assert.ok(answers.every((text) => text.startsWith("HTTP/1.1 200 OK")));
  for (const client of clients) client.destroy();
  await eventually("new clients are served", () => serves(port, "/now"));
});

test("with even fewer files than connections need, what cannot be opened is refused and nothing breaks", {
  skip: process.platform !== "linux" && "the limit is read from /proc",
}, async (t) => {
  const backend = await backendFor(t, (_req, res) => void res.end("ok"));
  const yaml = `config: { adminAddr: "127.0.0.1:0" }
gateways: { one: { port: 0, address: 127.0.0.1 }, two: { port: 0, address: 127.0.0.1 }, three: { port: 0, address: 127.0.0.1 } }
routes: [{ gateways: [one, two, three], backends: [{ host: "${backend.host}" }] }]
`;
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], { maxOpenFiles: 256 });
  const ports = await Promise.all(["one", "two", "three"].map((name) => gateway.port(name)));
  const clients: Socket[] = [];
  // Three listeners with 80 places each: more than the process can open.
  for (const port of ports) clients.push(...(await connectMany(t, port, 120)));
  for (const client of clients) client.destroy();
  for (const port of ports) await eventually("it serves again", () => serves(port));
  gateway.child.kill("SIGTERM");
  assert.deepEqual([(await gateway.exited).code, (await gateway.exited).stderr], [0, ""]);
});

test("a stream as loud as it can be leaves the others their turn [R46]", { timeout: 600_000 }, async (t) => {
  const event = Buffer.from(`data: ${"x".repeat(65_000)}\n\n`);
  const { gateway } = await behindGateway(t, (req, res) => {
    if (req.url !== "/flood") {
      res.end("ok");
      return;
    }
    res.writeHead(200, { "content-type": "text/event-stream" });
    const more = (): void => {
      while (!res.destroyed && res.write(event));
      res.once("drain", more);
    };
    more();
  });
  const flood = connect(gateway.port(), "127.0.0.1");
  t.after(() => flood.destroy());
  let bytes = 0;
  flood.on("data", (chunk) => {
    bytes += chunk.length;
  });
  flood.write("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
  await eventually("it flows", () => bytes > 1_000_000);

  const meanwhile: number[] = [];
  for (let round = 0; round < 5; round++) {
    const before = bytes;
    await Promise.all(Array.from({ length: 20 }, async () => assert.equal(await statusOf(gateway.port()), 200)));
    meanwhile.push((bytes - before) / 1e6);
  }
  await eventually("the stream continues", () => bytes > 5_000_000);
  const median = meanwhile.sort((a, b) => a - b)[2] ?? 0;
  assert.ok(median < 100, `${median} MB passed while twenty others waited for a word`);
});

function proxy(host: string): string {
  return `config: { adminAddr: "127.0.0.1:0", logging: { level: "info,access=off" } }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ host: "${host}" }] }]\n`;
}

function limitsText(): string {
  try {
    return readFileSync("/proc/self/limits", "latin1");
  } catch {
    return "";
  }
}
