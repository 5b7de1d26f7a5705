/**
 * What the streams of a session keep for clients that are absent or read slowly is charged to the session, and released
 * when it is sent or dropped, whatever the order of events, clients, and disconnections.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../../../test/support/random.ts";
import { MemoryAccount, MemoryPool } from "../../base/memory-budget.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import type { EventStream } from "./event-stream.ts";
import { SessionStreams } from "./session-streams.ts";

const RUNS = 150;
const STEPS = 120;
const KEPT_MS = 60_000;
const POOL_BYTES = 2 * 1024 * 1024;

const MESSAGES = [1, 100, 50_000, 300_000].map((chars) => JSON.stringify("x".repeat(chars)));
const CHUNKS = MESSAGES.map((message) => [Buffer.from(message), Buffer.from(" ")]);

/** A connection whose client reads when `mayRead` is set. */
class SlowClient {
  readonly run: BackendRun;
  mayRead = true;
  isOpen = true;

  constructor(open: (sink: ResponseReceiver) => BackendRun) {
    const close = (): void => {
      this.isOpen = false;
    };
    const sink = { head: () => undefined, data: () => this.mayRead, end: close, fail: close, problem: close };
    this.run = open(sink as unknown as ResponseReceiver);
  }
}

interface Opened {
  readonly streams: SessionStreams;
  readonly pool: MemoryPool;
  readonly account: MemoryAccount;
  readonly clock: { nowMs: number };
  /** Lets the messages to other replicas arrive, or fail to. */
  deliver(isDelivered: boolean): Promise<void>;
  isCongested: boolean;
}

function open(isShared: boolean): Opened {
  const pool = new MemoryPool(POOL_BYTES, POOL_BYTES);
  const account = new MemoryAccount(pool, "client");
  const clock = { nowMs: 0 };
  const waiting: ((isDelivered: boolean) => void)[] = [];
  const ignore = (): void => undefined;
  const streams = new SessionStreams(
    {
      id: "s",
      get nowMs() {
        return clock.nowMs;
      },
      primesStreams: true,
      peers: {
        isShared,
        listening: ignore,
        notListening: ignore,
        deliver: () => new Promise<boolean>((resolve) => void waiting.push(resolve)),
      },
      heartbeats: { startHeartbeat: ignore, stopHeartbeat: ignore },
      streamClosed: ignore,
      congested: (isCongested: boolean) => {
        opened.isCongested = isCongested;
      },
    },
    account,
  );
  const opened: Opened = {
    streams,
    pool,
    account,
    clock,
    isCongested: false,
    async deliver(isDelivered) {
      for (const resolve of waiting.splice(0)) resolve(isDelivered);
      await Promise.resolve();
      await Promise.resolve();
    },
  };
  return opened;
}

test(`${RUNS} random runs: all memory of a session is released with its streams, clients, and kept events`, async () => {
  for (let seed = 0; seed < RUNS; seed++) {
    const random = new Random(seed);
    const opened = open(random.oneIn(2));
    const { streams, pool, account, clock } = opened;
    const posts: EventStream[] = [];
    const clients: SlowClient[] = [];
    const message = (): string => random.pick(MESSAGES);
    const payload = (): string | readonly Buffer[] => random.pick([message(), random.pick(CHUNKS)]);
    const actions: readonly (() => unknown)[] = [
      () => {
        const stream = streams.create();
        posts.push(stream);
        const client = new SlowClient((sink) => {
          stream.attach(sink);
          return stream;
        });
        clients.push(client);
      },
      () => void clients.push(new SlowClient((sink) => streams.listen(sink, undefined, random.pick([10, 100_000])))),
      () => {
        const stream = random.int(posts.length + 1);
        const after = { stream, number: random.int(4) };
        clients.push(new SlowClient((sink) => streams.resumeResponse(sink, after) ?? streams.listen(sink, after)));
      },
      () => posts.length > 0 && random.pick(posts).event(payload()),
      () => posts.length > 0 && random.pick(posts).event(payload()),
      () => {
        const stream = posts.length > 0 ? random.pick(posts) : undefined;
        if (stream?.isComplete === false) stream.last(payload());
      },
      () => posts.length > 0 && random.pick(posts).begin(),
      () => posts.length > 0 && random.pick(posts).disconnect(),
      () => streams.send(message()),
      () => streams.send(message()),
      () => opened.deliver(random.oneIn(2)),
      () => streams.sendUndelivered(),
      () => {
        clock.nowMs += random.pick([1, 20_000, 40_000]);
        streams.sweep(clock.nowMs);
        for (const stream of posts) stream.beat(clock.nowMs);
      },
      () => {
        const client = random.pick(clients);
        if (client === undefined) return;
        client.mayRead = !client.mayRead;
        if (client.mayRead && client.isOpen) client.run.resume?.();
      },
      () => {
        const client = random.pick(clients);
        if (client?.isOpen === true) client.run.abort();
      },
    ];
    for (let step = 0; step < STEPS; step++) {
      await random.pick(actions)();
      assert.ok(account.bytes >= 0 && pool.usedBytes === account.bytes, `seed ${seed}: ${account.bytes} bytes`);
    }
    // Nothing waits for clients that are gone, and the kept events expire.
    for (const client of clients) if (client.isOpen) client.run.abort();
    streams.disconnect();
    for (const stream of posts) stream.abort();
    assert.equal(opened.isCongested, false, `seed ${seed}`);
    await opened.deliver(true);
    clock.nowMs += KEPT_MS;
    streams.sweep(clock.nowMs);
    new SlowClient((sink) => streams.listen(sink, undefined)).run.abort();
    clock.nowMs += KEPT_MS;
    streams.sweep(clock.nowMs);
    assert.deepEqual([account.bytes, pool.usedBytes, streams.log.size], [0, 0, 0], `seed ${seed}`);
  }
});
