/**
 * HTTP/2 streams that clients open and keep open without reading: they are charged to their client, the largest
 * connections are cut first, and a complete response that is not read is given up after seconds. The clock stands still
 * unless a test advances it.
 */
import assert from "node:assert/strict";
import { constants } from "node:http2";
import { after, before, type TestContext, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import {
  END_HEADERS,
  END_STREAM,
  FRAME,
  type FrameClient,
  field,
  frame,
  indexedField,
  openFrameClient,
  reference,
  requestHead,
  uint32,
} from "../support/http2/raw-frames.ts";
import { gatewayFor } from "../support/scenario.ts";

const { NGHTTP2_ENHANCE_YOUR_CALM } = constants;
const KIB = 1024;
/** A client has half of the pool, 128 KiB: room for eight streams without heads. */
const POOL_BYTES = 256 * KIB;
const STREAMS = 16;
const LARGE = "y".repeat(1_900);
const LARGE_BODY = Buffer.alloc(64 * KIB, "x");
const WHOLE_HEAD = END_HEADERS | END_STREAM;

let addresses = 1;
/** The connections of an earlier test may still be charged. */
const nextAddress = (): string => `127.0.1.${addresses++}`;

const clock = fakeClock();
let isFull = false;
let backend: TestBackend;
let gateway: TestGateway;
before(async () => {
  // Nothing answers `/hang`, `/key` is a 401 of the gateway.
  backend = await startBackend((req, res) => {
    if (req.url === "/hang") return;
    if (req.url === "/trailers") {
      res.writeHead(200, { trailer: "x-end" });
      res.addTrailers({ "x-end": "1" });
    }
    res.end(req.url === "/large" ? LARGE_BODY : "ok");
  });
  gateway = await startGateway(
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { matches: [{ path: { pathPrefix: /key } }], backends: [{ host: "${backend.host}" }], policies: { apiKey: { keys: [{ key: abcdefghijklmnop }] } } }
  - { backends: [{ host: "${backend.host}" }] }
`,
    {
      clock,
      memoryLimits: { openStreamBytes: POOL_BYTES },
      heapSize: () => ({ usedBytes: isFull ? 96 : 1, limitBytes: 100 }),
    },
  );
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

async function isServed(): Promise<boolean> {
  return (await fetch(`http://127.0.0.1:${gateway.port()}/`)).status === 200;
}

interface Form {
  readonly name: string;
  readonly windowBytes?: number;
  /** The frames of one stream. */
  stream(id: number): Buffer;
  /** Sent when the streams are open. */
  after?(client: FrameClient, count: number): void;
  /** True if each stream has a complete response, so that it is also given up after seconds. */
  readonly isAnswered: boolean;
}

const get = (id: number, path: string, ...fields: readonly Buffer[]): Buffer =>
  frame(FRAME.headers, WHOLE_HEAD, id, requestHead("GET", path, ...fields));

const FORMS: readonly Form[] = [
  { name: "a closed window", windowBytes: 0, isAnswered: true, stream: (id) => get(id, "/key") },
  { name: "a window of one byte", windowBytes: 1, isAnswered: true, stream: (id) => get(id, "/key") },
  {
    name: "a closed window and responses of a backend",
    windowBytes: 0,
    isAnswered: true,
    stream: (id) => get(id, "/"),
  },
  { name: "a closed window and trailers", windowBytes: 0, isAnswered: true, stream: (id) => get(id, "/trailers") },
  {
    name: "heads of 8 KB",
    windowBytes: 0,
    isAnswered: true,
    stream: (id) => get(id, "/key", field("x-pad", "y".repeat(8_000))),
  },
  {
    name: "references to large fields",
    windowBytes: 0,
    isAnswered: true,
    stream: (id) =>
      get(
        id,
        "/key",
        ...(id === 1 ? [indexedField("x-a", LARGE), indexedField("x-b", LARGE)] : []),
        reference(62),
        reference(63),
      ),
  },
  {
    name: "a window that opens by one byte",
    windowBytes: 0,
    isAnswered: true,
    stream: (id) => get(id, "/key"),
    after: (client, count) => {
      for (let id = 1; id < 2 * count; id += 2) client.send(frame(FRAME.windowUpdate, 0, id, uint32(1)));
    },
  },
  { name: "requests without a response", isAnswered: false, stream: (id) => get(id, "/hang") },
  {
    name: "bodies that never end",
    isAnswered: false,
    stream: (id) =>
      Buffer.concat([
        frame(FRAME.headers, END_HEADERS, id, requestHead("POST", "/hang")),
        frame(FRAME.data, 0, id, Buffer.from("x")),
      ]),
  },
  {
    name: "bodies that were asked for",
    isAnswered: false,
    stream: (id) =>
      frame(FRAME.headers, END_HEADERS, id, requestHead("POST", "/hang", field("expect", "100-continue"))),
  },
  {
    name: "trailers of requests",
    isAnswered: false,
    stream: (id) =>
      Buffer.concat([
        frame(FRAME.headers, END_HEADERS, id, requestHead("POST", "/hang")),
        frame(FRAME.headers, WHOLE_HEAD, id, field("x-end", "1")),
      ]),
  },
  {
    name: "CONNECT",
    windowBytes: 0,
    isAnswered: true,
    stream: (id) =>
      frame(FRAME.headers, END_HEADERS, id, Buffer.concat([field(":method", "CONNECT"), field(":authority", "a:1")])),
  },
];

function openStreams(t: TestContext, form: Form, from: string, count = STREAMS): FrameClient {
  const client = openFrameClient(t, gateway.port(), {
    from,
    ...(form.windowBytes === undefined ? {} : { windowBytes: form.windowBytes }),
  });
  client.send(...Array.from({ length: count }, (_, i) => form.stream(2 * i + 1)));
  form.after?.(client, count);
  return client;
}

for (const form of FORMS)
  test(`streams with ${form.name} are charged to their client, and its largest connections are cut`, async (t) => {
    const from = nextAddress();
    const small = openStreams(t, form, from, 2);
    // The only connection that is charged may exceed the share.
    let largest = openStreams(t, form, from);
    for (let i = 0; i < 3; i++) {
      const next = openStreams(t, form, from);
      await eventually("the larger connection was cut", () => largest.isClosed);
      assert.equal(largest.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
      largest = next;
    }
    assert.ok(await isServed());
    assert.deepEqual([small.isClosed, largest.isClosed], [false, false]);
  });

/** Two connections with as many streams as fit without heads. */
for (const [form, isCut] of [
  ["a closed window", false],
  ["heads of 8 KB", true],
  ["references to large fields", true],
] as const)
  test(`streams with ${form} ${isCut ? "count with their heads" : "fit into the share"}`, async (t) => {
    const from = nextAddress();
    const chosen = FORMS.find(({ name }) => name === form) as Form;
    const heads = (client: FrameClient): number => client.frames.filter(({ type }) => type === FRAME.headers).length;
    const first = openStreams(t, chosen, from, 7);
    await eventually("the first are open", () => heads(first) >= 7);
    const second = openStreams(t, chosen, from, 7);
    if (isCut) await eventually("a connection was cut", () => first.isClosed);
    else await eventually("the second are open", () => heads(second) >= 7);
    assert.deepEqual([first.isClosed, second.isClosed], [isCut, false]);
  });

for (const form of FORMS.filter(({ isAnswered }) => isAnswered))
  test(`complete responses with ${form.name} are given up after seconds`, async (t) => {
    const client = openStreams(t, form, nextAddress(), 5);
    const heads = (): number => client.frames.filter(({ type }) => type === FRAME.headers).length;
    await eventually("all were answered", () => heads() >= 5);
    await clock.advance(4_000);
    assert.deepEqual(
      client.resets().filter((code) => code === NGHTTP2_ENHANCE_YOUR_CALM),
      [],
    );
    await clock.advance(3_000);
    await eventually("all were reset", () => client.resets().length === 5);
    assert.deepEqual(new Set(client.resets()), new Set([NGHTTP2_ENHANCE_YOUR_CALM]));
    assert.equal(client.isClosed, false);
  });

test("a client that reads slowly keeps its responses", async (t) => {
  const client = openFrameClient(t, gateway.port(), { from: nextAddress(), windowBytes: 0 });
  client.send(get(1, "/large"), get(3, "/key"));
  await eventually("both were answered", () => client.frames.filter(({ type }) => type === FRAME.headers).length === 2);
  for (let seconds = 1; seconds <= 20; seconds++) {
    client.send(frame(FRAME.windowUpdate, 0, 1, uint32(2 * KIB)));
    const readBytes = (): number =>
      client.frames.reduce((sum, { type, payload }) => sum + (type === FRAME.data ? payload.length : 0), 0);
    await eventually("some was read", () => readBytes() === seconds * 2 * KIB);
    await clock.advance(1_000);
  }
  assert.deepEqual(client.resets(), []);
});

test("while memory is full, streams are reset instead of waiting with an error", async (t) => {
  isFull = true;
  await clock.advance(500);
  const client = openStreams(t, FORMS[0] as Form, nextAddress(), 3);
  await eventually("all were reset", () => client.resets().length === 3);
  assert.deepEqual(new Set(client.resets()), new Set([NGHTTP2_ENHANCE_YOUR_CALM]));
  assert.ok(client.frames.every(({ type }) => type !== FRAME.headers));
  isFull = false;
  await clock.advance(500);
  assert.ok(await isServed());
});

test("of the clients behind a proxy, only the one with too many streams loses them", async (t) => {
  const behindProxy = await gatewayFor(
    t,
    `config: { trustedProxies: [127.0.0.0/8] }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ backends: [{ host: "${backend.host}" }] }]
`,
    { clock: fakeClock(), memoryLimits: { openStreamBytes: POOL_BYTES } },
  );
  const from = (address: string) => field("x-forwarded-for", address);
  const proxy = openFrameClient(t, behindProxy.port());
  for (let id = 1; id < 2 * STREAMS; id += 2) proxy.send(get(id, "/hang", from(id < 4 ? "192.0.2.1" : "192.0.2.2")));
  const second = openFrameClient(t, behindProxy.port());
  for (let id = 1; id < STREAMS; id += 2) second.send(get(id, "/hang", from("192.0.2.2")));
  await eventually("the streams of the client were reset", () => proxy.resets().length === STREAMS - 2);
  const reset = proxy.frames.filter(({ type }) => type === FRAME.reset).map(({ stream }) => stream);
  assert.equal(Math.min(...reset), 5);
  assert.deepEqual([proxy.isClosed, second.isClosed, second.resets().length], [false, false, 0]);
});
