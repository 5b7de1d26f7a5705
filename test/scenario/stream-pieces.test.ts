/**
 * Streams of backends whose bytes come in all sorts of pieces: whole chunks, several at once, parts of one. What clients get is
 * the same, whichever HTTP they speak and whoever else looks at it.
 */
import assert from "node:assert/strict";
import { connect as connectHttp2 } from "node:http2";
import { type AddressInfo, createServer, type Server } from "node:net";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openRawClient } from "../support/raw-client.ts";

let backend: Server;
let gateway: TestGateway;
/** What the next connection of the backend answers with, piece by piece. */
let pieces: readonly string[] = [];

before(async () => {
  backend = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => {
      const rest = [...pieces];
      const next = (): void => {
        const piece = rest.shift();
        // In a turn of its own, so that it is a read of its own as often as the system lets it.
        if (piece === undefined) socket.end();
        else socket.write(piece, "latin1", () => setImmediate(next));
      };
      next();
    });
  });
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(backend.address() as AddressInfo).port}`;
  gateway = await startGateway(`
gateways: { plain: { port: 0 }, watched: { port: 0 }, llm: { port: 0 } }
routes:
  - { name: plain, gateways: plain, backends: [{ host: "${host}" }] }
  - { name: watched, gateways: watched, backends: [{ host: "${host}" }], policies: { responseHeaderModifier: { set: { x-seen: "1" } } } }
  - { name: llm, gateways: llm, backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${host}" } }] }
`);
});

after(async () => {
  await gateway.close();
  backend.close();
});

const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const CHAT = JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content: "hi" }] });

const event = fc
  .string({ unit: "grapheme", maxLength: 60 })
  .map((content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }], usage: null })}\n\n`)
  .map((text) => Buffer.from(text).toString("latin1"));
const chunked = (body: string): string => `${body.length.toString(16)}\r\n${body}\r\n`;

/** Events as chunks, and how many of them are written at once; or bytes cut anywhere. */
const stream = fc
  .record({
    events: fc.array(event, { minLength: 1, maxLength: 12 }),
    together: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1 }),
    cut: fc.option(fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }), { freq: 2 }),
  })
  .map(({ events, together, cut }) => {
    const written: string[] = [HEAD];
    if (cut === null)
      for (let at = 0, i = 0; at < events.length; i++) {
        const many = together[i % together.length] as number;
        written.push(
          events
            .slice(at, at + many)
            .map(chunked)
            .join(""),
        );
        at += many;
      }
    else {
      const bytes = events.map(chunked).join("");
      for (let at = 0, i = 0; at < bytes.length; i++) {
        const size = cut[i % cut.length] as number;
        written.push(bytes.slice(at, at + size));
        at += size;
      }
    }
    return { pieces: [...written, "0\r\n\r\n"], body: events.join("") };
  });

/** The body of an answer in chunks; throws if the framing is not what HTTP says. */
function unchunked(text: string): string {
  let body = "";
  for (let at = text.indexOf("\r\n\r\n") + 4; ; ) {
    const line = text.indexOf("\r\n", at);
    const size = Number.parseInt(text.slice(at, line), 16);
    assert.ok(line > at && /^[0-9a-f]+$/.test(text.slice(at, line)), `a size in ${JSON.stringify(text.slice(at))}`);
    if (size === 0) {
      assert.equal(text.slice(line), "\r\n\r\n");
      return body;
    }
    body += text.slice(line + 2, line + 2 + size);
    assert.equal(text.slice(line + 2 + size, line + 4 + size), "\r\n");
    at = line + 4 + size;
  }
}

async function overHttp11(listener: string, request: string): Promise<string> {
  const client = openRawClient(gateway.port(listener));
  client.write(request);
  const text = await client.until("\r\n0\r\n\r\n");
  client.close();
  return unchunked(text);
}

async function overHttp10(): Promise<string> {
  const client = openRawClient(gateway.port("plain"));
  client.write("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
  const { text } = await client.ended();
  return text.slice(text.indexOf("\r\n\r\n") + 4);
}

async function overHttp2(): Promise<string> {
  const session = connectHttp2(gateway.url("plain"));
  const request = session.request({ ":path": "/" });
  let body = "";
  for await (const chunk of request.setEncoding("latin1")) body += chunk as string;
  session.destroy();
  return body;
}

const GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST = `POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\ncontent-type: application/json\r\ncontent-length: ${CHAT.length}\r\n\r\n${CHAT}`;
const ways: [name: string, read: () => Promise<string>][] = [
  ["HTTP/1.1", () => overHttp11("plain", GET)],
  ["HTTP/1.0", overHttp10],
  ["HTTP/2", overHttp2],
  ["HTTP/1.1, with a policy for the response", () => overHttp11("watched", GET)],
  ["HTTP/1.1, of an LLM", () => overHttp11("llm", POST)],
];
for (const [name, read] of ways) {
  test(`a stream arrives whole over ${name}`, async () => {
    await fc.assert(
      fc.asyncProperty(stream, async (sent) => {
        pieces = sent.pieces;
        assert.equal(await read(), sent.body);
      }),
      { numRuns: 40 },
    );
  });
}

test("the usage chunk that nobody asked for is taken out, whole or cut", async () => {
  const usage = `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } })}\n\n`;
  await fc.assert(
    fc.asyncProperty(stream, fc.nat({ max: 200 }), async (sent, cut) => {
      const last = chunked(usage) + chunked("data: [DONE]\n\n");
      pieces = [...sent.pieces.slice(0, -1), last.slice(0, cut), last.slice(cut), "0\r\n\r\n"].filter(
        (one) => one !== "",
      );
      assert.equal(await overHttp11("llm", POST), `${sent.body}data: [DONE]\n\n`);
    }),
    { numRuns: 40 },
  );
});
