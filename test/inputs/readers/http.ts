/** Hostile inputs of the HTTP, TLS, and WebSocket readers. */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { linearRegex } from "../../../src/base/regex.ts";
import { readClientHello } from "../../../src/http/client-hello.ts";
import { RequestParser } from "../../../src/http/h1/request-parser.ts";
import { ResponseParser } from "../../../src/http/h1/response-parser.ts";
import { parseStreamHead } from "../../../src/http/h2/parse-stream-head.ts";
import { readProxyHeader } from "../../../src/http/proxy-protocol.ts";
import { type ReceivedHead, readRequestHead } from "../../../src/http/request-head.ts";
import { FrameCounter } from "../../../src/http/websocket-frames.ts";
import { cut, type HostileInputs, hostile, inPieces, many, mapShapes, STREAM_PIECES, together } from "../hostile.ts";
import { endTurn } from "../turns.ts";

const PROXY_HEADER = peerInput("client/proxy-header");
const HELLO = peerInput("client/tls-hello");

const latin1 = (text: string): Buffer => Buffer.from(text, "latin1");

/** Lines of a head. */
const headLines = {
  "many lines": (n: number) => many(n, (i) => `x-${i}: 1\r\n`),
  "equal names": (n: number) => many(n, () => "cookie: a=b\r\n"),
  "one large value": (n: number) => `x: ${"a".repeat(n)}\r\n`,
  "one large name": (n: number) => `${"x".repeat(n)}: a\r\n`,
  "many values": (n: number) => `accept: ${many(n, () => "a", ", ")}\r\n`,
  "many options of the connection": (n: number) => `connection: ${many(n, (i) => `x-${i}`, ",")}\r\n`,
  "white space": (n: number) => `x: ${" \t".repeat(n / 2)}\r\n`,
  "invalid at the end": (n: number) => `${many(n, (i) => `x-${i}: 1\r\n`)}x y: z\r\n`,
};

/** Below the limit of 16 KiB, and beyond it. */
const HEAD_BYTES = 5_000;

/** Routes match paths and headers with patterns. */
const ROUTE_PATTERNS = ["a+b", "(a*)*b", "^/a(b|ab)*$", "[^/]+/[^/]+$", "(?i)x.*y"].map((source) =>
  linearRegex(peerInput("file/pattern"), source),
);
const matchedTexts = {
  "one large text": (n: number) => "x".repeat(n),
  "almost a match": (n: number) => "a".repeat(n),
  "many matches": (n: number) => "ab".repeat(n / 2),
  "many segments": (n: number) => "/a".repeat(n / 2),
  "other characters": (n: number) => "é".repeat(n),
};

function readRequests(bytes: Buffer, pieceBytes: number): string {
  let requests = 0;
  let bodyBytes = 0;
  const parser: RequestParser = new RequestParser(peerInput("client/http1-head"), peerInput("client/request-framing"), {
    head(request, body) {
      requests += 1;
      bodyBytes += body?.length ?? 0;
      readRequestHead(peerInput("client/http1-head"), request, false, false);
    },
    data(chunk) {
      bodyBytes += chunk.length;
    },
    end: () => undefined,
  });
  for (const piece of inPieces(bytes, pieceBytes)) for (let at = 0; at < piece.length; ) at = parser.push(piece, at);
  return `${requests} requests, ${bodyBytes} bytes`;
}

function readResponse(bytes: Buffer, pieceBytes: number): string {
  let bodyBytes = 0;
  let lines = 0;
  const parser = new ResponseParser(peerInput("backend/http1-head"), peerInput("backend/response-framing"), {
    head({ headers }) {
      lines += headers.pairs.length;
    },
    data(chunk) {
      bodyBytes += chunk.length;
    },
    end(trailers) {
      lines += trailers.length;
    },
    upgrade: () => undefined,
  });
  parser.expect("GET");
  for (const piece of inPieces(bytes, pieceBytes)) parser.push(piece);
  parser.eof();
  return `${lines} lines, ${bodyBytes} bytes`;
}

const chunkedBodies = {
  "many small chunks": (n: number) => `${"1\r\nx\r\n".repeat(n / 6)}0\r\n\r\n`,
  "one large chunk": (n: number) => `${n.toString(16)}\r\n${"x".repeat(n)}\r\n0\r\n\r\n`,
  "chunk extensions": (n: number) => many(n, () => "1;a=b;c=d\r\nx\r\n"),
  "one large extension": (n: number) => `1;${"a".repeat(n)}\r\nx\r\n`,
  "many trailers": (n: number) => `0\r\n${many(n, (i) => `x-${i}: 1\r\n`)}\r\n`,
  "never completed": (n: number) => `ffffff\r\n${"x".repeat(n)}`,
  "never completed size": (n: number) => "0".repeat(n),
  "invalid at the end": (n: number) => `${"1\r\nx\r\n".repeat(n / 6)}g\r\n`,
};

function frame(payload: number, mask: boolean): Buffer {
  const length = payload < 126 ? [payload] : [126, payload >> 8, payload & 0xff];
  const first = (length[0] as number) | (mask ? 0x80 : 0);
  return Buffer.concat([Buffer.from([0x82, first, ...length.slice(1)]), Buffer.alloc((mask ? 4 : 0) + payload, 1)]);
}

const times = (n: number, bytes: Buffer): Buffer =>
  Buffer.concat(Array.from({ length: Math.ceil(n / bytes.length) }, () => bytes));

const webSocketFrames = hostile<Buffer>({
  shapes: {
    "many empty frames": (n) => times(n, frame(0, false)),
    "many small frames": (n) => times(n, frame(1, true)),
    "large frames": (n) => times(n, frame(1_000, false)),
    "never completed header": (n) => Buffer.concat([times(n, frame(1, false)), Buffer.from([0x82, 0xff])]),
    "never completed payload": (n) =>
      Buffer.concat([Buffer.from([0x82, 127, 0, 0, 0, 0, 0xff, 0, 0, 0]), Buffer.alloc(n)]),
    "many close frames": (n) => times(n, Buffer.from([0x88, 0x02, 3, 0xe9])),
  },
  read(bytes, pieceBytes) {
    const frames = new FrameCounter(peerInput("client/websocket-frame"));
    for (const piece of inPieces(bytes, pieceBytes))
      for (let at = 0; at < piece.length; ) at += Math.max(1, frames.read(piece.subarray(at), true));
    return frames.isAtBoundary;
  },
  pieces: STREAM_PIECES,
});

function pairs(lines: string): string[] {
  return lines
    .split("\r\n")
    .slice(0, -1)
    .flatMap((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    });
}

const record = (bytes: Buffer): Buffer => {
  const head = Buffer.from([22, 3, 1, 0, 0]);
  head.writeUInt16BE(bytes.length, 3);
  return Buffer.concat([head, bytes]);
};

/** A ClientHello with these extensions. */
function hello(extensions: Buffer): Buffer {
  const fixed = Buffer.concat([Buffer.from([3, 3]), Buffer.alloc(32), Buffer.from([0, 0, 2, 0x13, 1, 1, 0])]);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(extensions.length & 0xffff);
  const body = Buffer.concat([fixed, length, extensions]);
  const head = Buffer.from([1, 0, 0, 0]);
  head.writeUIntBE(body.length, 1, 3);
  return Buffer.concat([head, body]);
}

function inRecords(handshake: Buffer, recordBytes: number): Buffer {
  return Buffer.concat(cut(handshake, recordBytes).map(record));
}

const serverName = (name: string): Buffer => {
  const bytes = Buffer.from(name);
  const head = Buffer.alloc(9);
  head.writeUInt16BE(bytes.length + 5, 2);
  head.writeUInt16BE(bytes.length + 3, 4);
  head.writeUInt16BE(bytes.length, 7);
  return Buffer.concat([head, bytes]);
};

const responseBodies = hostile<Buffer>({
  shapes: mapShapes(chunkedBodies, (body) => latin1(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${body}`)),
  read: readResponse,
  pieces: STREAM_PIECES,
  bytes: HEAD_BYTES,
});

export const httpInputs = {
  "client/proxy-header": hostile<Buffer>({
    shapes: {
      "version 1, long": (n) => latin1(`PROXY TCP4 ${"1".repeat(n)} 2.2.2.2 1 2\r\n`),
      "version 1, many words": (n) => latin1(`PROXY ${many(n, () => "a", " ")}\r\n`),
      "version 1, never completed": (n) => latin1(`PROXY TCP6 ${":".repeat(n)}`),
      "version 2, many small fields": (n) => proxyHeader(times(n, Buffer.from([4, 0, 0]))),
      "version 2, one large field": (n) => {
        const field = Buffer.alloc(n + 3, 4);
        field.writeUInt16BE(n, 1);
        return proxyHeader(field);
      },
      "version 2, never completed": (n) => proxyHeader(times(n, Buffer.from([4, 0, 0]))).subarray(0, -1),
      "version 2, invalid at the end": (n) =>
        proxyHeader(Buffer.concat([times(n, Buffer.from([4, 0, 0])), Buffer.from([4, 9, 9])])),
    },
    read: (bytes) => readProxyHeader(PROXY_HEADER, bytes).state,
    bytes: 1_500,
  }),
  "client/tls-hello": hostile<Buffer>({
    shapes: {
      "many small extensions": (n) => inRecords(hello(times(n, Buffer.from([0x12, 0x34, 0, 0]))), 16_000),
      "many server names": (n) => inRecords(hello(times(n, serverName("a.example"))), 16_000),
      "one large server name": (n) => inRecords(hello(serverName("a".repeat(Math.min(n, 60_000)))), 16_000),
      "many small records": (n) => inRecords(hello(Buffer.alloc(n)), 1),
      "large records": (n) => inRecords(hello(Buffer.alloc(n)), Math.ceil(n / 20)),
      "never completed": (n) => inRecords(hello(Buffer.alloc(n)), 16_000).subarray(0, -1),
      "invalid at the end": (n) =>
        inRecords(hello(Buffer.concat([times(n, Buffer.from([0x12, 0x34, 0, 0])), Buffer.from([0, 0, 9])])), 16_000),
    },
    read: (bytes) => readClientHello(HELLO, bytes).state,
    bytes: HEAD_BYTES,
  }),
  "client/http1-head": together({
    parser: hostile<Buffer>({
      shapes: {
        ...mapShapes(headLines, (lines) => latin1(`GET / HTTP/1.1\r\nhost: a\r\n${lines}\r\n`)),
        "one large path": (n) => latin1(`GET /${"a".repeat(n)} HTTP/1.1\r\nhost: a\r\n\r\n`),
        "many segments": (n) => latin1(`GET ${"/a".repeat(n / 2)} HTTP/1.1\r\nhost: a\r\n\r\n`),
        "dot segments": (n) => latin1(`GET ${"/a/..".repeat(n / 5)} HTTP/1.1\r\nhost: a\r\n\r\n`),
        "escaped path": (n) => latin1(`GET /${"%41".repeat(n / 3)} HTTP/1.1\r\nhost: a\r\n\r\n`),
        "one large host": (n) => latin1(`GET / HTTP/1.1\r\nhost: ${"a.".repeat(n / 2)}\r\n\r\n`),
        "never completed": (n) => latin1(`GET / HTTP/1.1\r\nhost: a\r\n${"x: y\r\n".repeat(n / 6)}`),
        "never completed line": (n) => latin1(`GET /${"\r".repeat(n)}`),
        "empty lines": (n) => latin1("\r\n".repeat(n / 2)),
        "many requests": (n) => latin1("GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(n / 28)),
      },
      read: readRequests,
      pieces: STREAM_PIECES,
      bytes: HEAD_BYTES,
    }),
    routes: hostile<string>({
      shapes: matchedTexts,
      read: (text) =>
        ROUTE_PATTERNS.map((pattern) => {
          endTurn();
          return pattern.test(text);
        }).join(),
    }),
  }),
  "client/http2-head": hostile<string[]>({
    shapes: mapShapes(
      {
        ...headLines,
        "one large path": (n: number) => `:path: /${"a".repeat(n)}\r\n`,
        "dot segments": (n: number) => `:path: ${"/a/..".repeat(n / 5)}\r\n`,
      },
      (lines) =>
        [
          ":method",
          "GET",
          ":scheme",
          "https",
          ":authority",
          "a",
          ":path",
          "/",
          ...pairs(lines.replace(/^:/, "\0")),
        ].map((text) => text.replace("\0", ":")),
    ),
    read: (raw) =>
      readRequestHead(peerInput("client/http2-head"), parseStreamHead(raw) as ReceivedHead, false, false).path.length,
    bytes: HEAD_BYTES,
  }),
  "client/request-framing": hostile<Buffer>({
    shapes: mapShapes(chunkedBodies, (body) =>
      latin1(`POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n${body}`),
    ),
    read: readRequests,
    pieces: STREAM_PIECES,
    bytes: HEAD_BYTES,
  }),
  "client/websocket-frame": webSocketFrames,
  "backend/websocket-frame": webSocketFrames,
  "backend/http1-head": hostile<Buffer>({
    shapes: {
      ...mapShapes(headLines, (lines) => latin1(`HTTP/1.1 200 OK\r\n${lines}content-length: 0\r\n\r\n`)),
      "many interim responses": (n) => latin1("HTTP/1.1 103 Hints\r\nlink: a\r\n\r\n".repeat(n / 31)),
      "one large reason": (n) => latin1(`HTTP/1.1 200 ${"a".repeat(n)}\r\ncontent-length: 0\r\n\r\n`),
      "never completed": (n) => latin1(`HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(n / 6)}`),
      "never completed line": (n) => latin1(`HTTP/1.1 200 ${"\r".repeat(n)}`),
    },
    read: readResponse,
    pieces: STREAM_PIECES,
    bytes: 2 * HEAD_BYTES,
  }),
  "backend/response-framing": responseBodies,
  "alert-service/response": responseBodies,
  "otlp-collector/response": responseBodies,
} satisfies HostileInputs;

function proxyHeader(fields: Buffer): Buffer {
  const addresses = Buffer.from([1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 0, 2]);
  const head = Buffer.from([0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, 0x11, 0, 0]);
  head.writeUInt16BE(Math.min(0xffff, addresses.length + fields.length), 14);
  return Buffer.concat([head, addresses, fields]);
}
