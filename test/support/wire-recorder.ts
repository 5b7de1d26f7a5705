/**
 * A proxy between the gateway and a server that records all bytes of both directions and parses them as HTTP/1.1 with
 * its own parser, independent of the code under test.
 */
import { connect, createServer, type Socket } from "node:net";

export interface RecordedHead {
  /** The first line. */
  readonly start: string;
  /** name, value, …; the names in lower case. */
  readonly pairs: readonly string[];
  readonly body: Buffer;
}

export interface RecordedExchange {
  /** Which it is: connections go on side by side. */
  readonly key: string;
  readonly request: RecordedHead;
  readonly response: RecordedHead | undefined;
}

export interface WireRecorder {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  exchanges(): RecordedExchange[];
  close(): Promise<void>;
}

export async function startWireRecorder(server: string): Promise<WireRecorder> {
  const [host = "", port = ""] = server.split(":");
  const wires: { sent: Buffer[]; received: Buffer[] }[] = [];
  const sockets = new Set<Socket>();
  const listener = createServer((client) => {
    const wire = { sent: [] as Buffer[], received: [] as Buffer[] };
    wires.push(wire);
    const upstream = connect({ host, port: Number(port) });
    for (const [from, to, kept] of [
      [client, upstream, wire.sent],
      [upstream, client, wire.received],
    ] as const) {
      sockets.add(from);
      from.on("data", (chunk) => {
        kept.push(chunk);
        to.write(chunk);
      });
      from.on("end", () => to.end());
      from.on("error", () => to.destroy());
      from.on("close", () => to.destroy());
    }
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    host: `127.0.0.1:${(listener.address() as { port: number }).port}`,
    exchanges: () =>
      wires.flatMap(({ sent, received }, wire) => {
        const responses = messagesOf(Buffer.concat(received));
        return messagesOf(Buffer.concat(sent)).map((request, i) => ({
          key: `${wire}/${i}`,
          request,
          response: responses[i],
        }));
      }),
    close: () =>
      new Promise((resolve) => {
        listener.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** All messages of one direction; the last one perhaps without the end of its body. */
function messagesOf(bytes: Buffer): RecordedHead[] {
  const messages: RecordedHead[] = [];
  let at = 0;
  while (at < bytes.length) {
    const end = bytes.indexOf("\r\n\r\n", at, "latin1");
    if (end < 0) break;
    const [start = "", ...lines] = bytes.toString("latin1", at, end).split("\r\n");
    const pairs = lines.flatMap((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    });
    const body = bodyAt(bytes, end + 4, start, pairs);
    messages.push({ start, pairs, body: body.bytes });
    at = body.end;
  }
  return messages;
}

function bodyAt(bytes: Buffer, from: number, start: string, pairs: readonly string[]): { bytes: Buffer; end: number } {
  const value = (name: string): string | undefined =>
    pairs[pairs.findIndex((text, i) => i % 2 === 0 && text === name) + 1];
  const has = (name: string): boolean => pairs.some((text, i) => i % 2 === 0 && text === name);
  // What follows an upgrade is not HTTP.
  if (start.includes(" 101 ")) return { bytes: Buffer.alloc(0), end: bytes.length };
  if (has("transfer-encoding")) return chunksAt(bytes, from);
  const length = has("content-length") ? Number(value("content-length")) : 0;
  return { bytes: bytes.subarray(from, from + length), end: from + length };
}

function chunksAt(bytes: Buffer, from: number): { bytes: Buffer; end: number } {
  const chunks: Buffer[] = [];
  for (let at = from; ; ) {
    const line = bytes.indexOf("\r\n", at, "latin1");
    if (line < 0) return { bytes: Buffer.concat(chunks), end: bytes.length };
    const size = Number.parseInt(bytes.toString("latin1", at, line), 16);
    if (size === 0) return { bytes: Buffer.concat(chunks), end: line + 4 };
    chunks.push(bytes.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
}
