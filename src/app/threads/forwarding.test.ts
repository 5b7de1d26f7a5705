import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { MessageChannel } from "node:worker_threads";
import fc from "fast-check";
import { eventually } from "../../../test/support/eventually.ts";
import { systemClock } from "../../base/clock.ts";
import { createIdSource } from "../../base/ids.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import type { Backend, ResponseReceiver } from "../../core/backend.ts";
import { Exchange, type GatewayRequest, NO_BODY, type RequestBody } from "../../core/exchange.ts";
import type { CompiledScope, Outcome } from "../../core/policy.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { Route } from "../../core/topology.ts";
import type { RequestBodyStream } from "../../http/body.ts";
import { type BodyCarrier, RequestBodySource } from "../../http/h1/request-body.ts";
import { HeaderList } from "../../http/headers.ts";
import { LISTENER_LIMITS, type ListenerEnv } from "../../pipeline/listen/listener-env.ts";
import { handle } from "../../pipeline/phases/pipeline.ts";
import type { Served } from "../../pipeline/phases/pipeline-env.ts";
import { createRouteTable } from "../../pipeline/route/match-route.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { createForwarding, threadOf } from "./forwarding.ts";

const ROUTE = ["mcp", "mcp-1", "mcp-2"].find((name) => threadOf(name, 2) === 2) ?? "";
const MAX_WINDOW_BYTES = 256 * 1024;
/** Prime steps: a piece that is lost, repeated or moved shows. */
const PATTERN = Buffer.from(Uint8Array.from({ length: 100_000 }, (_, i) => (i * 7 + (i >> 8) * 13) % 256));

/** What the backend of the owning thread received, and its response. */
interface Received {
  readonly request: GatewayRequest;
  readonly source: Exchange["source"];
  readonly id: string;
  body: Buffer | undefined;
}

type Respond = (call: ResponseReceiver, exchange: Exchange, received: Received) => Run;
type Run = { resume(): void; abort(): void };

interface Threads {
  readonly received: Received[];
  readonly settled: Outcome[];
  readonly defects: unknown[];
  level: "normal" | "full";
  /** Sends a request to the thread that does not own the route. */
  ask(request: Partial<GatewayRequest>, client: TestClient): void;
  /** The thread that owns the route ends. */
  end(): void;
}

/** Two threads as the gateway connects them; here both run in the thread of the test. */
function connectThreads(t: TestContext, respond: Respond): Threads {
  const received: Received[] = [];
  const settled: Outcome[] = [];
  const defects: unknown[] = [];
  const backend: Backend = {
    attributes: { name: "mcp", type: "mcp", protocol: "mcp" },
    defaultTimeoutMs: 0,
    describe: () => ({}),
    prepare: (exchange) => ({
      call(receiver) {
        const { request, source, id } = exchange;
        const one: Received = { request, source, id, body: undefined };
        received.push(one);
        return respond(receiver, exchange, one);
      },
    }),
  };
  const route: Route = {
    name: ROUTE,
    hostnames: [],
    matches: [{ path: { pathPrefix: "/" } }],
    policies: emptyScope("route"),
    backends: [{ backend, weight: 1, policies: emptyScope("backend") }],
    totalWeight: 1,
    protection: "none",
    namedOverrides: new Set(),
    readsCredential: false,
  };
  const served: Served = {
    listener: {
      name: "main",
      address: undefined,
      port: 0,
      protocol: "HTTP",
      tls: undefined,
      writtenAt: () => "",
      policies: emptyScope("gateway"),
      routes: [route],
      unmatched: emptyScope("route"),
    },
    table: createRouteTable([route]),
  };
  const heap = { level: "normal" as "normal" | "full", stop: () => undefined };
  const env: ListenerEnv = {
    clock: systemClock,
    logger: silentLogger,
    ids: createIdSource(),
    limits: LISTENER_LIMITS,
    heap,
    memory: createMemoryBudget(systemClock),
    redaction: createRedaction([]),
    random: Math.random,
    isTrustedPeer: () => false,
    trace: () => undefined,
    settled: (_exchange, outcome) => void settled.push(outcome),
    defect: (_exchange, error) => void defects.push(error),
    unexpected: (error) => void defects.push(error),
  };
  const accepting = createForwarding({ thread: 1, threads: 2 }, env, () => served);
  const owning = createForwarding({ thread: 2, threads: 2 }, env, (name) => (name === "main" ? served : undefined));
  const { port1, port2 } = new MessageChannel();
  accepting.connect(2, port1);
  owning.connect(1, port2);
  t.after(() => {
    accepting.close();
    owning.close();
  });
  return {
    received,
    settled,
    defects,
    get level() {
      return heap.level;
    },
    set level(level) {
      heap.level = level;
    },
    ask(request, client) {
      const exchange = new Exchange({
        id: "0123456789abcdef",
        listener: "main",
        source: {
          address: "192.0.2.7",
          port: 4711,
          identity: "CN=alice",
          serverName: "a.test",
        },
        request: {
          method: "POST",
          scheme: "https",
          namesHttps: false,
          host: "a.test",
          path: "/x",
          rawPath: "//%78",
          query: "q=1",
          version: "2",
          headers: HeaderList.of({ host: "a.test" }),
          body: NO_BODY,
          ...request,
        },
        startedAt: 1,
        startedMs: 2,
      });
      handle({ ...env, forwardToThread: accepting.forwardToThread }, served, exchange, client);
    },
    end: () => owning.close(),
  };
}

/** A client that takes bytes only when the test lets it. */
class TestClient implements ClientSink {
  onDrain: (() => void) | undefined = undefined;
  onStalled: (() => void) | undefined = undefined;
  onClose: ((complete: boolean) => void) | undefined = undefined;
  status = 0;
  headers = new HeaderList();
  readonly #chunks: Buffer[] = [];
  trailers: readonly string[] | undefined = undefined;
  state: "open" | "complete" | "cut" = "open";
  /** Bytes that were written and not taken; at most so many before `write` returns false. */
  #waiting = 0;
  readonly #room: number;
  mostWaiting = 0;

  constructor(room = Number.POSITIVE_INFINITY) {
    this.#room = room;
  }

  get text(): string {
    return Buffer.concat(this.#chunks).toString("latin1");
  }

  head(status: number, headers: HeaderList): void {
    this.status = status;
    this.headers = headers;
  }

  write(chunk: Buffer): boolean {
    this.#chunks.push(chunk);
    this.#waiting += chunk.length;
    this.mostWaiting = Math.max(this.mostWaiting, this.#waiting);
    if (this.#waiting <= this.#room) {
      this.#waiting = 0;
      return true;
    }
    setImmediate(() => {
      this.#waiting = 0;
      this.onDrain?.();
    });
    return false;
  }

  end(lastChunk?: Buffer, trailers?: readonly string[]): void {
    if (lastChunk) this.#chunks.push(lastChunk);
    this.trailers = trailers;
    this.state = "complete";
    setImmediate(() => this.onClose?.(true));
  }

  destroy(): void {
    this.state = "cut";
    setImmediate(() => this.onClose?.(false));
  }

  upgrade(): void {
    this.destroy();
  }

  askForBody(): void {}

  isUploading(): boolean {
    return false;
  }
}

/** A body that arrives in pieces, each as soon as the reader takes it. */
function arriving(
  pieces: readonly Buffer[],
  length: number | undefined,
  waits: (bytes: number) => void = () => undefined,
): RequestBody {
  let next = 0;
  let isPaused = true;
  const carrier: BodyCarrier = {
    pauseBody() {
      isPaused = true;
    },
    bodyWaits: (_body, bytes) => waits(bytes),
    resumeBody() {
      setImmediate(() => {
        isPaused = !stream.flush();
        while (!isPaused && next < pieces.length) stream.push(pieces[next++] as Buffer);
        if (next === pieces.length) stream.complete();
      });
    },
  };
  const stream = new RequestBodySource(carrier);
  return { kind: "stream", stream, length, taken: false };
}

/** Reads the body, then responds with these chunks, as fast as the client takes them. */
function respondWith(status: number, chunks: readonly Buffer[], headers: HeaderList, trailers?: string[]): Respond {
  return (call, { request: { body } }, received) => {
    let next = 0;
    let isOver = false;
    const go = (): void => {
      while (!isOver && next < chunks.length) if (!call.data(chunks[next++] as Buffer)) return;
      if (isOver) return;
      isOver = true;
      call.end(trailers);
    };
    const begin = (bytes: Buffer): void => {
      received.body = bytes;
      call.head(status, headers.clone());
      go();
    };
    if (body.kind === "bytes") begin(body.bytes);
    else if (body.kind === "none") begin(Buffer.alloc(0));
    else {
      const pieces: Buffer[] = [];
      body.stream.on("data", (piece) => void pieces.push(piece));
      body.stream.on("end", () => begin(Buffer.concat(pieces)));
    }
    return {
      resume: go,
      abort() {
        isOver = true;
      },
    };
  };
}

const bytes = (maxLength: number): fc.Arbitrary<Buffer> =>
  fc
    .tuple(fc.integer({ min: 0, max: maxLength }), fc.integer({ min: 0, max: 255 }))
    .map(([length, first]) => PATTERN.subarray(first, first + length));

const exchanges = fc.record({
  pieces: fc.array(bytes(40_000), { maxLength: 12 }),
  isWhole: fc.boolean(),
  hasLength: fc.boolean(),
  chunks: fc.array(bytes(70_000), { maxLength: 12 }),
  room: fc.constantFrom(Number.POSITIVE_INFINITY, 100_000, 0),
  headerSizes: fc.array(fc.integer({ min: 0, max: 20_000 }), { maxLength: 4 }),
  hasTrailers: fc.boolean(),
});

test("every byte of a forwarded request and its response arrives once and in order, and the senders wait [T31]", async (t) => {
  await fc.assert(
    fc.asyncProperty(exchanges, async ({ pieces, isWhole, hasLength, chunks, room, headerSizes, hasTrailers }) => {
      const headers = new HeaderList(["host", "a.test"]);
      for (const [i, size] of headerSizes.entries()) headers.add(`x-${i}`, "v".repeat(size));
      const whole = Buffer.concat(pieces);
      const trailers = hasTrailers ? ["x-sum", "1"] : undefined;
      const threads = connectThreads(t, respondWith(201, chunks, headers, trailers));
      const client = new TestClient(room);
      const body: RequestBody = isWhole
        ? { kind: "bytes", bytes: whole }
        : arriving(pieces, hasLength ? whole.length : undefined);
      threads.ask({ headers, body }, client);
      await eventually("the response has ended", () => client.state !== "open" && threads.settled.length > 0);
      const [received] = threads.received;
      assert.ok(received);
      assert.equal(received.body?.toString("latin1"), whole.toString("latin1"));
      assert.deepEqual(received.request.headers.pairs, headers.pairs);
      assert.equal(client.state, "complete");
      assert.equal(client.status, 201);
      assert.equal(client.text, Buffer.concat(chunks).toString("latin1"));
      for (const [i, size] of headerSizes.entries()) assert.equal(client.headers.get(`x-${i}`)?.length, size);
      // A sender stops at the window; the chunk that reaches it goes out whole.
      assert.ok(client.mostWaiting <= MAX_WINDOW_BYTES + 70_000, `${client.mostWaiting} bytes wait for the client`);
      assert.deepEqual(threads.defects, []);
      assert.equal(threads.settled[0]?.end, "complete");
    }),
    { numRuns: 40 },
  );
});

test("body bytes that the owning thread has not read are charged where the connection was accepted [R50]", async (t) => {
  let stream: RequestBodyStream | undefined;
  let readBytes = 0;
  let isPaused = true;
  const threads = connectThreads(t, (call, { request: { body } }) => {
    assert.ok(body.kind === "stream");
    stream = body.stream;
    stream.on("data", (chunk: Buffer) => {
      readBytes += chunk.length;
      if (isPaused) stream?.pause();
    });
    stream.on("end", () => {
      call.head(200, new HeaderList());
      call.end([]);
    });
    return { resume: () => undefined, abort: () => undefined };
  });
  const pieces = Array.from({ length: 10 }, () => PATTERN);
  let waitingBytes = 0;
  const client = new TestClient();
  const body = arriving(pieces, 10 * PATTERN.length, (bytes) => {
    waitingBytes = bytes;
  });
  threads.ask({ body }, client);
  await eventually("the window is full and read once", () => waitingBytes >= MAX_WINDOW_BYTES && readBytes > 0);
  assert.equal(readBytes, PATTERN.length);
  isPaused = false;
  stream?.resume();
  await eventually("everything was read", () => client.state === "complete" && waitingBytes === 0);
  assert.equal(readBytes, 10 * PATTERN.length);
});

test("the owning thread sees what the client's connection said about the request", async (t) => {
  const threads = connectThreads(t, respondWith(200, [Buffer.from("ok")], new HeaderList()));
  const client = new TestClient();
  threads.ask({ headers: HeaderList.of({ host: "a.test", upgrade: "websocket", connection: "upgrade" }) }, client);
  await eventually("the response has ended", () => client.state === "complete");
  const [received] = threads.received;
  assert.deepEqual(received?.source, {
    address: "192.0.2.7",
    port: 4711,
    identity: "CN=alice",
    serverName: "a.test",
  });
  const { method, scheme, host, path, rawPath, query, version } = received?.request ?? {};
  assert.deepEqual(
    [method, scheme, host, path, rawPath, query, version],
    ["POST", "https", "a.test", "/x", "//%78", "q=1", "2"],
  );
  assert.deepEqual(received?.request.headers.pairs, ["host", "a.test"]);
  assert.equal(received?.id, "0123456789abcdef");
  assert.equal(client.headers.get("x-request-id"), "0123456789abcdef");
});

const endless: Respond = (call) => {
  call.head(200, new HeaderList(["content-type", "text/event-stream"]));
  call.data(Buffer.from("data: 1\n\n"));
  return { resume: () => undefined, abort: () => void aborted.push(call) };
};
const aborted: ResponseReceiver[] = [];

test("a client that leaves ends the request in the owning thread", async (t) => {
  aborted.length = 0;
  const threads = connectThreads(t, endless);
  const client = new TestClient();
  threads.ask({}, client);
  await eventually("the first event", () => client.text !== "");
  client.onClose?.(false);
  await eventually("the request was aborted", () => aborted.length === 1 && threads.settled.length === 1);
  assert.equal(threads.settled[0]?.end, "aborted");
});

test("when the owning thread ends, responses under way are cut, and requests without a response get 503", async (t) => {
  const streaming = connectThreads(t, endless);
  const [client, next] = [new TestClient(), new TestClient()];
  streaming.ask({}, client);
  await eventually("the first event", () => client.text !== "");
  streaming.end();
  await eventually("the response was cut", () => client.state === "cut");
  streaming.ask({}, next);
  assert.equal(next.status, 503);
  assert.equal(next.headers.get("retry-after"), "1");

  const silent = connectThreads(t, () => ({ resume: () => undefined, abort: () => undefined }));
  const waiting = new TestClient();
  silent.ask({}, waiting);
  await eventually("the request arrived", () => silent.received.length === 1);
  silent.end();
  await eventually("the client was told", () => waiting.status === 503);
  assert.match(waiting.text, /the thread that serves this route is being replaced/);
});

test("a thread whose memory is full rejects forwarded requests like its own", async (t) => {
  const threads = connectThreads(t, endless);
  threads.level = "full";
  const client = new TestClient();
  threads.ask({}, client);
  await eventually("the client was told", () => client.status === 503);
  assert.equal(threads.received.length, 0);
  assert.equal(client.headers.get("x-gateway-error"), "overloaded");
});

test("a response that breaks off is cut, never ended as if it were whole", async (t) => {
  const threads = connectThreads(t, (call) => {
    call.head(200, new HeaderList());
    call.data(Buffer.from("half"));
    setImmediate(() => call.fail(new Error("gone")));
    return { resume: () => undefined, abort: () => undefined };
  });
  const client = new TestClient();
  threads.ask({}, client);
  await eventually("the response is over", () => client.state !== "open");
  assert.equal(client.state, "cut");
});

function emptyScope(phase: CompiledScope["phase"]): CompiledScope {
  return {
    phase,
    access: [],
    admit: { head: [], body: [], call: [] },
    shape: [],
    body: [],
    sight: { tokens: false, watchedTokens: false, model: false, call: false },
    response: [],
    settle: [],
    settings: {},
    isTransparent: true,
    readsResponseBody: false,
    effectivePolicy: {},
  };
}
