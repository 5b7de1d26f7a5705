/**
 * Several messages on one connection, among them those after which Node lets go of the socket (upgrades, CONNECT) and
 * those that it cannot read: every pair and triple is answered in order or refused, and the connection ends.
 */
import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { after, before, test } from "node:test";
import { ADMIN_PATHS } from "../../src/admin/server/paths.ts";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openRawClient, rawRequest } from "../support/raw-client.ts";

let backend: TestBackend;
let gateway: TestGateway;

before(async () => {
  backend = await startBackend(answer);
  backend.server.on("upgrade", (req: IncomingMessage, socket: Duplex) => {
    socket.on("error", () => undefined);
    socket.end(
      `HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nx-saw: ${req.url}\r\n\r\n`,
    );
  });
  gateway = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
});

after(async () => {
  await gateway.close();
  await backend.close();
});

function answer(req: IncomingMessage, res: ServerResponse): void {
  req.resume();
  req.once("end", () => {
    const size = Number(req.headers["x-size"] ?? 4);
    const give = (): void =>
      void res.writeHead(200, { "x-saw": req.url, "content-length": size }).end("x".repeat(size));
    if (req.headers["x-slow"]) setImmediate(() => setImmediate(give));
    else give();
  });
}

const OFFER = (protocol: string): string =>
  `Connection: Upgrade\r\nUpgrade: ${protocol}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n`;

interface Kind {
  text(path: string): string;
  /** The status of its answer. */
  readonly status: number;
  /** Nothing after it is answered. */
  readonly isLast?: boolean;
}

const KINDS: Readonly<Record<string, Kind>> = {
  get: { text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`, status: 200 },
  slow: { text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\nX-Slow: 1\r\n\r\n`, status: 200 },
  // More than the socket takes at once: whoever writes must hear when there is room again.
  large: { text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\nX-Size: 300000\r\n\r\n`, status: 200 },
  post: { text: (path) => `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc`, status: 200 },
  "h2c offer": { text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n${OFFER("h2c")}\r\n`, status: 200 },
  "h2c offer with body": {
    text: (path) => `POST ${path} HTTP/1.1\r\nHost: a\r\n${OFFER("h2c")}Content-Length: 3\r\n\r\nabc`,
    status: 200,
  },
  "two protocols": { text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n${OFFER("websocket, h2c")}\r\n`, status: 200 },
  "WebSocket that closes": {
    text: (path) =>
      `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
    status: 200,
    isLast: true,
  },
  "WebSocket of HTTP/1.0": {
    text: (path) => `GET ${path} HTTP/1.0\r\nHost: a\r\n${OFFER("websocket")}\r\n`,
    status: 200,
    isLast: true,
  },
  "WebSocket that expects": {
    text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n${OFFER("websocket")}Expect: foo\r\n\r\n`,
    status: 417,
    isLast: true,
  },
  "unknown expectation": {
    text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\nExpect: foo\r\n\r\n`,
    status: 417,
    isLast: true,
  },
  websocket: {
    text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n${OFFER("websocket")}\r\n`,
    status: 101,
    isLast: true,
  },
  connect: { text: () => "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", status: 405, isLast: true },
  "refused head": {
    text: (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n`,
    status: 400,
    isLast: true,
  },
  "broken head": { text: () => "GET / HTTP/1.1\r\nHost : a\r\n\r\n", status: 400, isLast: true },
  "broken body": {
    text: (path) => `POST ${path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`,
    status: 400,
    isLast: true,
  },
  "last of HTTP/1.0": { text: (path) => `GET ${path} HTTP/1.0\r\nHost: a\r\n\r\n`, status: 200, isLast: true },
};

/** Every script ends with a request that closes, so that the answer has an end. */
function scripts(): string[][] {
  const names = Object.keys(KINDS);
  const opening = ["get", "slow", "large", "post", "h2c offer", "h2c offer with body"];
  return [
    ...names.map((name) => [name]),
    ...names.flatMap((first) => names.map((second) => [first, second])),
    ...opening.flatMap((first) =>
      names.flatMap((second) => [
        [first, second, "get"],
        [first, second, "websocket"],
      ]),
    ),
  ];
}

/** The statuses and paths that the answers must show, in order. */
function expected(script: readonly string[]): string[] {
  const answers: string[] = [];
  for (const [i, name] of script.entries()) {
    const { status, isLast } = KINDS[name] as Kind;
    answers.push(status < 400 ? `${status} /${i}` : String(status));
    if (isLast) return answers;
  }
  return [...answers, "200 /end"];
}

function answersIn(text: string): string[] {
  return text
    .split(/(?=HTTP\/1\.1 \d{3})/)
    .filter((part) => part.startsWith("HTTP/1.1 ") && !part.startsWith("HTTP/1.1 100"))
    .map((part) => `${part.slice(9, 12)} ${/x-saw: (\S+)/.exec(part)?.[1] ?? ""}`.trim());
}

for (const way of ["in one packet", "byte group by byte group"] as const) {
  test(`every pair and triple of messages ${way} is answered in order or refused`, async () => {
    const failures: string[] = [];
    const left = scripts();
    const run = async (): Promise<void> => {
      for (let script = left.pop(); script !== undefined; script = left.pop()) {
        const bytes = bytesOf(script);
        const sent = way === "in one packet" ? rawRequest(gateway.port(), bytes) : inPieces(bytes);
        const got = answersIn((await sent).text);
        if (got.join() !== expected(script).join()) failures.push(`${script.join(" + ")}: ${got.join()}`);
      }
    };
    await Promise.all(Array.from({ length: 16 }, run));
    assert.deepEqual(failures, []);
    await eventually("nothing is left open", async () => (await active()) === "0 connections, 0 requests");
  });
}

function bytesOf(script: readonly string[]): string {
  const messages = script.map((name, i) => (KINDS[name] as Kind).text(`/${i}`));
  return `${messages.join("")}GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`;
}

/** Pieces of 37 bytes: cuts fall into heads, bodies and between messages. */
async function inPieces(bytes: string) {
  const client = openRawClient(gateway.port());
  client.socket.setNoDelay(true);
  for (let at = 0; at < bytes.length; at += 37) {
    client.write(bytes.slice(at, at + 37));
    await new Promise(setImmediate);
  }
  return client.ended();
}

async function active(): Promise<string> {
  const memory = (await (await fetch(`${gateway.adminUrl}${ADMIN_PATHS.memory}`)).json()) as {
    parts: { connections: { connections: number; requests: number } };
  };
  const { connections, requests } = memory.parts.connections;
  return `${connections} connections, ${requests} requests`;
}
