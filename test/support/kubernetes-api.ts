/**
 * A fake Kubernetes API server for gwctl: lists pods by label and forwards ports over a WebSocket (v4.channel.k8s.io)
 * to loopback.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Duplex } from "node:stream";

const WEBSOCKET_KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const CONTINUE = 0;
const BINARY = 2;
const CLOSE = 8;

export interface StandInPod {
  readonly name: string;
  readonly gateway: string;
  readonly phase: string;
}

export interface StandInApi {
  readonly url: string;
  /** `method path`, in order. */
  readonly seen: string[];
  close(): Promise<void>;
}

export async function startKubernetesApi(options: {
  readonly token: string;
  readonly namespace: string;
  readonly pods: readonly StandInPod[];
  readonly gateways?: readonly unknown[];
}): Promise<StandInApi> {
  const seen: string[] = [];
  const isAllowed = (req: IncomingMessage): boolean => req.headers.authorization === `Bearer ${options.token}`;
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    seen.push(`${req.method} ${req.url}`);
    const url = new URL(req.url ?? "/", "http://api");
    const answer = (status: number, value: unknown): void => {
      res.writeHead(status, { "content-type": "application/json" });
      res.end(JSON.stringify(value));
    };
    if (!isAllowed(req)) answer(401, { message: "Unauthorized" });
    else if (url.pathname === `/apis/gateway.networking.k8s.io/v1/namespaces/${options.namespace}/gateways`)
      answer(200, { items: options.gateways ?? [] });
    else if (url.pathname !== `/api/v1/namespaces/${options.namespace}/pods`) answer(404, { message: "not found" });
    else {
      const wanted = url.searchParams.get("labelSelector")?.split("=")[1];
      const items = options.pods
        .filter(({ gateway }) => gateway === wanted)
        .map(({ name, phase }) => ({ metadata: { name }, status: { phase } }));
      answer(200, { items });
    }
  });
  server.on("upgrade", (req: IncomingMessage, socket: Duplex) => {
    seen.push(`UPGRADE ${req.url}`);
    const url = new URL(req.url ?? "/", "http://api");
    const port = Number(url.searchParams.get("ports"));
    const protocols = (req.headers["sec-websocket-protocol"] ?? "").split(/, */);
    if (!isAllowed(req) || !protocols.includes("v4.channel.k8s.io")) {
      socket.end("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
      return;
    }
    const accept = createHash("sha1").update(`${req.headers["sec-websocket-key"]}${WEBSOCKET_KEY}`).digest("base64");
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${accept}\r\nsec-websocket-protocol: v4.channel.k8s.io\r\n\r\n`,
    );
    forward(socket, port);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function forward(socket: Duplex, port: number): void {
  const portBytes = Buffer.alloc(2);
  portBytes.writeUInt16LE(port);
  // The first message of each channel repeats the port.
  for (const channel of [0, 1]) socket.write(frame(Buffer.concat([Buffer.of(channel), portBytes])));
  const upstream = connect(port, "127.0.0.1");
  upstream.on("data", (chunk) => socket.write(frame(Buffer.concat([Buffer.of(0), chunk]))));
  upstream.on("error", (error) => socket.write(frame(Buffer.concat([Buffer.of(1), Buffer.from(error.message)]))));
  upstream.on("close", () => socket.end(Buffer.of(0x80 | CLOSE, 0)));
  socket.on("error", () => upstream.destroy());
  socket.on("close", () => upstream.destroy());
  let held: Buffer = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    held = Buffer.concat([held, chunk]);
    for (let read = readFrame(held); read; read = readFrame(held)) {
      held = held.subarray(read.length);
      if (read.opcode === CLOSE) socket.end(Buffer.of(0x80 | CLOSE, 0));
      else if ((read.opcode === BINARY || read.opcode === CONTINUE) && read.payload[0] === 0)
        upstream.write(read.payload.subarray(1));
    }
  });
}

function frame(payload: Buffer): Buffer {
  const length = payload.length;
  if (length < 126) return Buffer.concat([Buffer.of(0x80 | BINARY, length), payload]);
  const head = Buffer.alloc(length < 65536 ? 4 : 10);
  head[0] = 0x80 | BINARY;
  head[1] = length < 65536 ? 126 : 127;
  if (length < 65536) head.writeUInt16BE(length, 2);
  else head.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([head, payload]);
}

function readFrame(bytes: Buffer): { opcode: number; payload: Buffer; length: number } | undefined {
  if (bytes.length < 2) return undefined;
  const opcode = (bytes[0] as number) & 15;
  let length = (bytes[1] as number) & 127;
  let at = 2;
  if (length === 126) {
    if (bytes.length < 4) return undefined;
    length = bytes.readUInt16BE(2);
    at = 4;
  } else if (length === 127) {
    if (bytes.length < 10) return undefined;
    length = Number(bytes.readBigUInt64BE(2));
    at = 10;
  }
  if (bytes.length < at + 4 + length) return undefined;
  const mask = bytes.subarray(at, at + 4);
  const payload = Buffer.from(bytes.subarray(at + 4, at + 4 + length));
  for (let i = 0; i < payload.length; i++) payload[i] = (payload[i] as number) ^ (mask[i % 4] as number);
  return { opcode, payload, length: at + 4 + length };
}
