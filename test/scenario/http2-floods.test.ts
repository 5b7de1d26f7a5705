/**
 * HTTP/2 clients that cost more than they ask for are cut off, and others on the same listener do not notice: rapid reset,
 * floods of SETTINGS and PING frames, heads that never end.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientHttp2Session, connect, constants } from "node:http2";
import { after, before, type TestContext, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import {
  END_HEADERS,
  END_STREAM,
  FRAME,
  field,
  frame,
  openFrameClient,
  requestHead,
} from "../support/http2/raw-frames.ts";

const { NGHTTP2_ENHANCE_YOUR_CALM } = constants;

const MANY_FRAMES = 20_000;

let backend: TestBackend;
let gateway: TestGateway;
before(async () => {
  backend = await startBackend((req, res) => {
    if (req.url === "/count") {
      let bytes = 0;
      let chunks = 0;
      req.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        chunks += 1;
      });
      req.on("end", () => res.end(`${bytes} ${chunks}`));
    } else if (!req.url?.startsWith("/hang")) res.end("ok");
  });
  gateway = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

function session(t: TestContext): ClientHttp2Session {
  const client = connect(`http://127.0.0.1:${gateway.port()}`, {
    maxOutstandingPings: 10_000,
    maxOutstandingSettings: 10_000,
  } as object);
  client.on("error", () => undefined);
  t.after(() => client.destroy());
  return client;
}

async function isServed(client: ClientHttp2Session): Promise<boolean> {
  const stream = client.request({ ":path": "/" });
  const [head] = (await once(stream, "response")) as [{ ":status": number }];
  stream.resume();
  await once(stream, "close");
  return head[":status"] === 200;
}

function cutOff(client: ClientHttp2Session): Promise<number> {
  return new Promise((resolve) => {
    let code = -1;
    client.once("goaway", (given: number) => {
      code = given;
    });
    client.once("close", () => resolve(code));
  });
}

const floods: [name: string, flood: (client: ClientHttp2Session) => void][] = [
  ["sends SETTINGS without end", (client) => client.settings({ enablePush: false })],
  ["sends PING without end", (client) => void client.ping(() => undefined)],
];
for (const [name, flood] of floods) {
  test(`a client that ${name} is cut off, others are served`, async (t) => {
    const bad = session(t);
    assert.equal(await isServed(bad), true);
    const end = cutOff(bad);
    // Some every turn, as a client that does not wait would.
    for (let i = 0; !bad.destroyed && i < 20_000; i++) {
      flood(bad);
      if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(await end, NGHTTP2_ENHANCE_YOUR_CALM);
    assert.equal(await isServed(session(t)), true);
  });
}

test("a few resets, settings and pings are nobody's business", async (t) => {
  const client = session(t);
  for (let i = 0; i < 20; i++) {
    for (const [, flood] of floods) flood(client);
    const stream = client.request({ ":path": "/hang" });
    stream.on("error", () => undefined);
    stream.close(constants.NGHTTP2_CANCEL);
  }
  assert.equal(await isServed(client), true);
});

/** Sends frames until the server closes the connection. */
async function rawFlood(
  t: TestContext,
  more: (i: number) => Buffer,
  most: number,
): Promise<{ sent: number; code: number | undefined }> {
  const client = openFrameClient(t, gateway.port());
  let sent = 0;
  for (; !client.isClosed && sent < most; sent++) {
    client.send(more(sent));
    if (sent % 10 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  if (!client.isClosed) await once(client.socket, "close");
  return { sent, code: client.goaway() };
}

test("a client that opens and resets streams without end is cut off, others are served", async (t) => {
  const cancel = Buffer.from([0, 0, 0, constants.NGHTTP2_CANCEL]);
  // GET, http, /hang, authority a (RFC 7541 appendix A).
  const head = Buffer.concat([Buffer.from([0x82, 0x86, 0x04, 5]), Buffer.from("/hang"), Buffer.from([0x01, 1, 0x61])]);
  const { sent, code } = await rawFlood(
    t,
    (i) => Buffer.concat([frame(1, 5, 2 * i + 1, head), frame(3, 0, 2 * i + 1, cancel)]),
    50_000,
  );
  assert.ok(sent < 50_000, `${sent} streams were taken`);
  assert.equal(code, NGHTTP2_ENHANCE_YOUR_CALM);
  assert.equal(await isServed(session(t)), true);
});

test("a limit takes effect before the rest of the same packet is handled", async (t) => {
  const cancel = Buffer.from([0, 0, 0, constants.NGHTTP2_CANCEL]);
  const head = requestHead("GET", "/hang/at-once");
  const client = openFrameClient(t, gateway.port());
  const ids = Array.from({ length: 1_000 }, (_, i) => 2 * i + 1);
  client.send(...ids.flatMap((id) => [frame(FRAME.headers, 5, id, head), frame(FRAME.reset, 0, id, cancel)]));
  await once(client.socket, "close");
  assert.equal(client.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  const begun = gateway.log().filter((line) => line.includes("/hang/at-once")).length;
  assert.ok(begun <= 65, `${begun} requests were begun`);
});

for (const [name, flood] of [
  ["PING frames", (_id: number) => [frame(FRAME.ping, 0, 0, Buffer.alloc(8))]],
  ["SETTINGS frames", (_id: number) => [frame(FRAME.settings, 0, 0)]],
  [
    "resets",
    (id: number) => [
      frame(FRAME.headers, 5, id, requestHead("GET", "/hang")),
      frame(FRAME.reset, 0, id, Buffer.from([0, 0, 0, constants.NGHTTP2_CANCEL])),
    ],
  ],
] as const)
  test(`bodies that follow too many ${name} in the same packet are ignored`, async (t) => {
    const client = openFrameClient(t, gateway.port());
    const ids = Array.from({ length: 200 }, (_, i) => 2 * i + 1);
    const posts = Array.from({ length: 5 }, (_, i) => 401 + 2 * i);
    client.send(
      ...ids.flatMap(flood),
      ...posts.flatMap((id) => [
        frame(FRAME.headers, END_HEADERS, id, requestHead("POST", "/count")),
        frame(FRAME.data, 0, id, Buffer.from("hello")),
        frame(FRAME.data, END_STREAM, id, Buffer.from("hello")),
      ]),
    );
    await once(client.socket, "close");
    assert.equal(client.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
    assert.equal(await isServed(session(t)), true);
  });

test("requests of one packet that are more than one turn are all served", async (t) => {
  const client = openFrameClient(t, gateway.port());
  const ids = Array.from({ length: 100 }, (_, i) => 2 * i + 1);
  client.send(...ids.map((id) => frame(FRAME.headers, 5, id, requestHead("GET", "/"))));
  const served = () => client.frames.filter(({ type, flags }) => type === FRAME.data && (flags & END_STREAM) !== 0);
  await eventually("all requests are served", () => served().length === ids.length);
  assert.deepEqual([client.goaway(), client.resets()], [undefined, []]);
});

test("single bytes of a request body reach the backend in few chunks, and nobody is cut off", async (t) => {
  const client = openFrameClient(t, gateway.port());
  client.send(frame(FRAME.headers, END_HEADERS, 1, requestHead("POST", "/count")));
  const last = MANY_FRAMES - 1;
  client.send(...Array.from({ length: last }, () => frame(FRAME.data, 0, 1, Buffer.from("x"))));
  client.send(frame(FRAME.data, END_STREAM, 1, Buffer.from("x")));
  const body = () => client.frames.find(({ type }) => type === FRAME.data)?.payload.toString();
  await eventually("the response has arrived", () => body() !== undefined);
  const [bytes, chunks] = (body() as string).split(" ").map(Number);
  assert.equal(bytes, MANY_FRAMES);
  assert.ok(chunks !== undefined && chunks < MANY_FRAMES / 20, `${chunks} chunks`);
});

test("a head that goes on over CONTINUATION frames without end is cut off", async (t) => {
  const { sent } = await rawFlood(
    t,
    (i) => (i === 0 ? frame(1, 0, 1, field(":method", "GET")) : frame(9, 0, 1, field(`x-${i}`, "y".repeat(100)))),
    50_000,
  );
  assert.ok(sent < 50_000, `${sent} frames were taken`);
  assert.equal((await fetch(gateway.url())).status, 200);
});
