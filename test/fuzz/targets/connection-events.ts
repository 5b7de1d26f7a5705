/**
 * Events of a client, its backend, and the clock in any order, through the connections of a listener and the whole
 * pipeline: tunnels, streams, uploads, aborts, and shutdown, over HTTP/1.1 and HTTP/2. Once both peers are gone, no
 * request may be in flight, no connection may be open, and nothing unexpected may have been reported.
 */
import type { Socket } from "node:net";
import { sendTo } from "../../../src/backends/host/backend.ts";
import { createIdSource } from "../../../src/base/ids.ts";
import { createMemoryBudget } from "../../../src/base/memory-budget.ts";
import type { Backend } from "../../../src/core/backend.ts";
import type { CompiledScope } from "../../../src/core/policy.ts";
import type { Route } from "../../../src/core/topology.ts";
import { HostHealth } from "../../../src/http/client/http-pool.ts";
import { writeBody } from "../../../src/http/h1/connection.ts";
import { HeaderList } from "../../../src/http/headers.ts";
import { HttpAttempt } from "../../../src/http/http-attempt.ts";
import { HttpClientError, type HttpPool } from "../../../src/http/http-client.ts";
import { ListenerConnections } from "../../../src/pipeline/listen/listener.ts";
import { LISTENER_LIMITS, type ListenerEnv } from "../../../src/pipeline/listen/listener-env.ts";
import type { Served } from "../../../src/pipeline/phases/pipeline-env.ts";
import { createRouteTable } from "../../../src/pipeline/route/match-route.ts";
import { silentLogger } from "../../../src/record/log/logger.ts";
import { createRedaction } from "../../../src/record/trace/redact.ts";
import { type FakeClock, fakeClock } from "../../support/fake-clock.ts";
import { MemorySocket } from "../../support/memory-socket.ts";
import type { Random } from "../../support/random.ts";
import { Http2Client } from "../http2-client.ts";
import { defineTarget, expect } from "../target.ts";

const MINUTE_MS = 60_000;
const LINGER_MS = 10_000;
const HTTP2_END_TURNS = 8;
/** Longer than every limit of a request: an idle tunnel lives longest. */
const LAST_WAIT_MS = LISTENER_LIMITS.tunnelIdleMs + 10 * MINUTE_MS;
const LONG = Buffer.alloc(40_000, "x");
const FRAME = Buffer.from("\x81\x02hi", "latin1");
const BEGINNING_OF_FRAME = Buffer.from("\x81\x7d", "latin1");
const redaction = createRedaction([]);
const ids = createIdSource();

/** One call of the gateway to the backend. */
interface Call {
  readonly attempt: HttpAttempt;
  readonly socket: MemorySocket;
}

class World {
  readonly clock: FakeClock = fakeClock();
  readonly client = new MemorySocket();
  /** Undefined as long as the client sends HTTP/1.1. */
  http2: Http2Client | undefined = undefined;
  readonly calls: Call[] = [];
  readonly unexpected: unknown[] = [];
  readonly connections: ListenerConnections;
  begun = 0;
  settled = 0;
  drained: "no" | "asked" | "yes" = "no";

  constructor() {
    const env: ListenerEnv = {
      clock: this.clock,
      logger: silentLogger,
      ids,
      limits: LISTENER_LIMITS,
      heap: { level: "normal", stop: () => undefined },
      memory: createMemoryBudget(this.clock),
      redaction,
      random: () => 0.5,
      isTrustedPeer: () => false,
      trace: () => {
        this.begun += 1;
        return undefined;
      },
      settled: () => {
        this.settled += 1;
      },
      defect: (_exchange, error) => void this.unexpected.push(error),
      unexpected: (error) => void this.unexpected.push(error),
    };
    this.connections = new ListenerConnections(env, "http", servedBy(this.#backend()));
    this.connections.add(this.client as unknown as Socket, "http1");
  }

  #backend(): Backend {
    const health = new HostHealth(this.clock, { ejected: () => undefined, recovered: () => undefined });
    const pool: HttpPool = {
      send: ({ body, headers }, receiver, observer) => {
        const socket = new MemorySocket();
        socket.on("error", () => undefined);
        const attempt = new HttpAttempt(
          { stop: () => void socket.destroy(), proceed: () => undefined },
          receiver,
          observer,
        );
        if (body !== undefined && !Buffer.isBuffer(body)) {
          const length = headers.get("content-length");
          const writer = writeBody(body, socket, length === undefined ? undefined : Number(length), (error) => {
            if (error) attempt.fail(new HttpClientError("request", error.message, error));
          });
          socket.on("close", () => writer.stop());
        }
        this.calls.push({ attempt, socket });
        return attempt;
      },
      connections: () => ({ open: 0, idle: 0 }),
      close: () => undefined,
    };
    return {
      attributes: { name: "backend", type: "static", protocol: "http" },
      defaultTimeoutMs: MINUTE_MS,
      prepare: (exchange) => ({
        call: (receiver) => sendTo(pool, "backend.test", "http", exchange, receiver, health),
      }),
      describe: () => ({}),
    };
  }

  /** The call that the backend's events are about, the newest by default. */
  get call(): Call | undefined {
    return this.calls[this.calls.length - 1 - this.#age];
  }

  #age = 0;

  /** The backend's next events are about the call before this one, or about the newest again. */
  turnToOlderCall(): void {
    this.#age = this.calls.length === 0 ? 0 : (this.#age + 1) % this.calls.length;
  }

  drain(lingerMs: number): void {
    if (this.drained !== "no") return;
    this.drained = "asked";
    void this.connections.drain(lingerMs).then(() => {
      this.drained = "yes";
    });
  }

  finishClosing(): void {
    this.client.finishClosing();
    for (const { socket } of this.calls) socket.finishClosing();
  }
}

function servedBy(backend: Backend): Served {
  const route: Route = {
    name: "route",
    hostnames: [],
    matches: [{ path: { pathPrefix: "/" } }],
    policies: emptyScope("route"),
    backends: [{ backend, weight: 1, policies: emptyScope("backend") }],
    totalWeight: 1,
    protection: "none",
    namedOverrides: new Set(),
    readsCredential: false,
  };
  return {
    listener: {
      name: "main",
      address: undefined,
      port: 0,
      protocol: "HTTP",
      tls: undefined,
      http2: true,
      writtenAt: () => "",
      policies: emptyScope("gateway"),
      routes: [route],
      unmatched: emptyScope("route"),
    },
    table: createRouteTable([route]),
  };
}

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

/** Sends text over HTTP/1.1. An HTTP/2 client acts on its streams instead. */
const send =
  (text: string, act?: (http2: Http2Client) => Buffer) =>
  ({ client, http2 }: World): void =>
    client.arrive(http2 === undefined || act === undefined ? Buffer.from(text, "latin1") : act(http2));

/** Only the first bytes of a connection select HTTP/2. Later, a preface is a malformed request. */
function openHttp2(world: World, streamWindow: number): void {
  const isFirst = world.client.bytesRead === 0;
  const http2 = new Http2Client();
  if (isFirst) world.client.readOn();
  world.client.arrive(http2.open(streamWindow));
  if (isFirst) world.http2 = http2;
}

const answer =
  (status: number, headers: Readonly<Record<string, string>>) =>
  ({ call }: World): void =>
    call?.attempt.head(status, HeaderList.of(headers));

function upgrade({ call }: World, first?: Buffer): void {
  if (call === undefined) return;
  if (first !== undefined) call.socket.arrive(first);
  call.attempt.upgraded(101, HeaderList.of({ upgrade: "websocket" }), call.socket);
}

/** Fails the call as a closed connection does. */
function failCall({ call }: World): void {
  call?.attempt.fail(new HttpClientError("response", "the connection was closed"));
  call?.socket.arriveReset();
}

const UPGRADE = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/** Each event has a letter, so that a case is a text that can be cut and crossed. */
const EVENTS: Readonly<Record<string, (world: World) => void | Promise<void>>> = {
  // The client.
  H: (world) => openHttp2(world, 65_535),
  I: (world) => openHttp2(world, 10),
  w: send(UPGRADE, (http2) => http2.widen()),
  W: send(`${UPGRADE}\x81\x02hi`, (http2) => http2.goAway()),
  g: send("GET / HTTP/1.1\r\nHost: a\r\n\r\n", (http2) => http2.get()),
  G: send("GET / HTTP/1.0\r\n\r\n", (http2) => http2.getInTwoFrames()),
  p: send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello", (http2) => http2.post("hello", 10)),
  P: send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", (http2) =>
    http2.post("hello"),
  ),
  e: send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", (http2) =>
    http2.post("", 5, ["expect", "100-continue"]),
  ),
  l: send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n", (http2) => http2.post("", 200_000)),
  b: send("world", (http2) => http2.data("newest", Buffer.from("world"))),
  B: ({ client, http2 }) => client.arrive(http2?.data("newest", LONG) ?? LONG),
  c: send("5\r\nworld\r\n", (http2) => http2.data("oldest", Buffer.from("world"))),
  C: send("0\r\n\r\n", (http2) => http2.endBody("newest")),
  h: send("GET / HT", (http2) => http2.get().subarray(0, 12)),
  x: send("\0\0\r\n\r\n", (http2) => http2.malformed()),
  f: ({ client }) => client.arriveEnd(),
  r: ({ client }) => client.arriveReset(),
  s: ({ client, http2 }) => {
    // A slow HTTP/2 client has a small window instead (`I`): for a socket without a handle, Node allows one write at a time.
    client.isStuck = http2 === undefined;
  },
  d: ({ client }) => client.readOn(),
  k: ({ client, http2 }) => client.arrive(http2?.resetStream("newest") ?? FRAME),
  K: ({ client, http2 }) => client.arrive(http2?.resetStream("oldest") ?? BEGINNING_OF_FRAME),
  // The backend.
  "1": (world) => upgrade(world),
  "2": (world) => upgrade(world, FRAME),
  "3": answer(200, { "content-type": "text/event-stream" }),
  "4": answer(200, { "content-length": "5" }),
  "5": answer(204, {}),
  "6": ({ call }) => void call?.attempt.data(Buffer.from("hello")),
  "7": ({ call }) => void call?.attempt.data(LONG),
  "8": ({ call }) => call?.attempt.end([]),
  "9": failCall,
  "0": ({ call }) => call?.socket.arrive(FRAME),
  z: ({ call }) => call?.socket.arriveEnd(),
  R: ({ call }) => call?.socket.arriveReset(),
  S: ({ call }) => {
    if (call !== undefined) call.socket.isStuck = true;
  },
  D: ({ call }) => call?.socket.readOn(),
  o: (world) => world.turnToOlderCall(),
  // The loop, the clock, and the operator.
  ".": turn,
  ",": (world) => world.finishClosing(),
  t: ({ clock }) => clock.advance(5_000),
  T: ({ clock }) => clock.advance(2 * MINUTE_MS),
  q: (world) => world.drain(0),
  Q: (world) => world.drain(LINGER_MS),
  X: ({ connections }) => connections.destroy(),
};
const LETTERS = Object.keys(EVENTS);
const HTTP2_OPENINGS = ["H", "Hg3", "H.g.4.6.", "Hp", "HP.3.", "Hgg.", "Ig.3.7.", "Hl.B.", "H.gpg.o3", "He."];
const OPENINGS = ["w1", "W1", "w", "g3", "g4", "p", "P", "l", "gg", "e", "w.1.", "g3.6.", "P.3."];

async function turn(world: World): Promise<void> {
  await nextTurn();
  world.finishClosing();
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

async function leave(world: World): Promise<void> {
  const sockets = (): MemorySocket[] => [world.client, ...world.calls.map(({ socket }) => socket)];
  for (const socket of sockets()) {
    socket.readOn();
    socket.arriveReset();
  }
  await turn(world);
  // Attempts of retries may have opened further connections.
  for (const { attempt, socket } of world.calls) {
    attempt.fail(new HttpClientError("response", "the connection was closed"));
    socket.arriveReset();
  }
  // Node ends an HTTP/2 session in several iterations of the event loop.
  for (let turns = 0; turns < (world.http2 === undefined ? 1 : HTTP2_END_TURNS); turns++) await turn(world);
}

export const connectionEvents = defineTarget<string>({
  name: "connection-events",
  seeds: [
    "w1",
    "w1.k0f.z.",
    "g3.6.6.8.",
    "P.c.3.6.r.C8",
    "pb.48",
    "gg4.68.4.68.",
    "w1qk0.t",
    "sg3.7.7.d.8.",
    "H.g.3.6.8.",
    "HP.b.C.48.q",
  ],
  smokeCases: 2_000,
  generate(random: Random) {
    const opening = random.pick(random.oneIn(2) ? HTTP2_OPENINGS : OPENINGS);
    return opening + random.text(LETTERS, 12);
  },
  async run(input) {
    const world = new World();
    for (const letter of input) await EVENTS[letter]?.(world);
    const open = world.connections.active();
    await leave(world);
    const left = world.connections.active();
    const failure = world.unexpected[0];
    expect(failure === undefined, `unexpected error: ${failure instanceof Error ? failure.stack : String(failure)}`);
    expect(left.requests === 0, `requests in flight after both peers left: ${left.requests}`);
    expect(left.connections === 0, `open connections after the client left: ${left.connections}`);
    expect(world.begun === world.settled, `${world.begun} requests began and ${world.settled} were settled`);
    expect(world.client.destroyed, "the client's socket is not closed");
    expect(
      world.calls.every(({ attempt }) => attempt.isOver),
      "a call to the backend goes on",
    );
    world.drain(0);
    await world.clock.advance(LINGER_MS);
    expect(world.drained === "yes", "shutdown waits although no request is in flight");
    world.connections.destroy();
    await world.clock.advance(LAST_WAIT_MS);
    expect(world.clock.pending() === 0, `timers are left: ${world.clock.pending()}`);
    return `${open.connections} ${open.requests} ${world.begun} ${world.calls.length} ${world.client.bytesWritten > 0}`;
  },
});
