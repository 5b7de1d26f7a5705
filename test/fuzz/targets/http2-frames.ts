/**
 * The DATA frames of an HTTP/2 stream: whatever their sizes, the pauses, and the moment of the end, the receiver gets each
 * byte once and in order, nothing while it is paused, in chunks of at most a frame, and then the end. Turns limit what a
 * connection reads in one iteration of the event loop, and each connection gets its turn.
 */
import type { Http2Stream } from "node:http2";
import { FrameReader } from "../../../src/http/h2/frame-reader.ts";
import { REQUEST_COST, ReadTurn, ReadTurns } from "../../../src/http/h2/read-turns.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

const FRAME_BYTES = 16_384;
const SMALL_BYTES = 1_024;
const MAX_STEPS = 200;
const TURN_COST = 64 * REQUEST_COST;
const TURNS_PER_ITERATION = 2;
const CALLS = ["pause", "resume", "flush", "afterReads"] as const;

/** A number is the size of a frame, or what a connection spends. */
type Step = number | (typeof CALLS)[number] | "end";
type FramesCase = {
  readonly steps: readonly Step[];
  /** Frames that arrived before the reader. */
  readonly early: number;
  /** The receiver pauses after each of so many chunks. */
  readonly pauseEvery: number;
  /** So many connections take turns. */
  readonly connections: number;
};

/** What the reader uses of a stream. Node calls `push`, and `end` follows the null that the reader lets through. */
class FakeStream {
  readonly destroyed = false;
  readonly #ended: (() => void)[] = [];
  readonly #early: Buffer | undefined;
  hasEnded = false;
  windows = 0;

  constructor(early: Buffer | undefined) {
    this.#early = early;
  }

  get readableLength(): number {
    return this.#early?.length ?? 0;
  }

  read(): Buffer | undefined {
    return this.#early;
  }

  push(chunk: Buffer | null): boolean {
    // Node ignores a second end.
    if (chunk === null) this.hasEnded = true;
    return true;
  }

  prependOnceListener(_event: string, listener: () => void): void {
    this.#ended.push(listener);
  }

  resume(): void {
    // The fake pushes whatever the state.
  }

  _read(): void {
    this.windows += 1;
  }

  emitEnd(): void {
    for (const listener of this.#ended.splice(0)) listener();
  }
}

function readFrames({ steps, early, pauseEvery }: FramesCase): string {
  const sent: Buffer[] = [];
  const received: Buffer[] = [];
  let isPaused = false;
  let counted = 0;
  let sentBytes = 0;
  const scheduled: (() => void)[] = [];
  const bytesOf = (size: number): Buffer => {
    const bytes = Buffer.alloc(size, (sent.length % 255) + 1);
    sent.push(bytes);
    sentBytes += size;
    return bytes;
  };
  const first = sizeOf(early);
  const stream = new FakeStream(first > 0 ? bytesOf(first) : undefined);
  const { push } = stream;
  const reader = new FrameReader(
    stream as unknown as Http2Stream,
    {
      frame(bytes) {
        counted += bytes;
      },
      data(chunk) {
        expect(!isPaused, "a chunk while the receiver is paused");
        expect(chunk.length > 0 && chunk.length <= Math.max(FRAME_BYTES, first), `a chunk of ${chunk.length} bytes`);
        received.push(chunk);
        isPaused = pauseEvery > 0 && received.length % Math.ceil(pauseEvery) === 0;
        return !isPaused;
      },
    },
    (action) => void scheduled.push(action),
  );
  const afterReads = (): void => {
    for (const action of scheduled.splice(0)) action();
    expect(isPaused || bytesIn(received) === sentBytes, "bytes are held after the reads");
  };
  const resume = (): void => {
    const windows = stream.windows;
    const wasPaused = isPaused;
    isPaused = false;
    reader.resume();
    if (wasPaused && !isPaused && !hasEnded) expectSame(stream.windows, windows + 1, "the window after a pause");
  };
  let hasEnded = false;
  for (const step of steps.slice(0, MAX_STEPS)) {
    if (step === "pause") {
      isPaused = true;
      reader.pause();
    } else if (step === "resume") resume();
    else if (step === "flush") reader.flush();
    else if (step === "afterReads") afterReads();
    else if (hasEnded) continue;
    else if (step === "end") {
      hasEnded = true;
      stream.push(null);
    } else if (typeof step === "number" && sizeOf(step) > 0) {
      const isOpen = stream.push(bytesOf(sizeOf(step)));
      expectSame(isOpen, !isPaused, "whether the window is extended");
    }
    expect(!stream.hasEnded || bytesIn(received) === sentBytes, "the end before the last bytes");
  }
  if (!hasEnded) stream.push(null);
  hasEnded = true;
  for (let left = sentBytes + 1; !stream.hasEnded && left > 0; left--) {
    afterReads();
    resume();
  }
  stream.emitEnd();
  expect(stream.hasEnded, "the stream does not end");
  expectSame(counted, sentBytes, "the counted bytes");
  expect(Buffer.concat(received).equals(Buffer.concat(sent)), "other bytes were received");
  expect(push !== stream.push, "the reader does not receive the frames");
  const small = received.filter(({ length }) => length < SMALL_BYTES).length;
  return `${Math.min(received.length, 12)} of ${Math.min(sent.length, 12)}, ${Math.min(small, 6)} small`;
}

function takeTurns({ steps, connections }: FramesCase): string {
  let next: (() => void) | undefined;
  const turns = new ReadTurns((action) => {
    expect(next === undefined, "two iterations at a time");
    next = action;
  });
  const count = Math.min(8, Math.max(1, Math.floor(connections)));
  const all = Array.from({ length: count }, () => {
    const state = { isReading: true, spent: 0, isStopped: false };
    const turn = new ReadTurn(
      {
        start: () => {
          expect(!state.isReading && !state.isStopped, "a connection that reads, or is over, starts");
          state.isReading = true;
          begun.push(state);
        },
        stop: () => {
          state.isReading = false;
        },
      },
      turns,
    );
    return { state, turn };
  });
  const begun: unknown[] = [];
  /** In the order in which they stopped. */
  let waiting: { isStopped: boolean; spent: number }[] = [];
  const iterate = (): void => {
    const action = next;
    next = undefined;
    begun.length = 0;
    action?.();
    expect(begun.length <= TURNS_PER_ITERATION, `${begun.length} turns in one iteration`);
    waiting = waiting.filter(({ isStopped }) => !isStopped);
    const expected = waiting.splice(0, TURNS_PER_ITERATION);
    for (const state of expected) state.spent = 0;
    expect(begun.length === expected.length && begun.every((state, i) => state === expected[i]), "another order");
  };
  for (const [i, step] of steps.slice(0, MAX_STEPS).entries()) {
    const { state, turn } = all[i % count] as (typeof all)[number];
    if (step === "afterReads") iterate();
    else if (step === "end") {
      turn.stop();
      state.isStopped = true;
      expect(!state.isReading, "a connection that is over reads");
    } else if (typeof step === "number" && state.isReading) {
      const cost = sizeOf(step) % (2 * TURN_COST);
      state.spent += cost;
      turn.spend(cost);
      if (state.spent > TURN_COST) waiting.push(state);
      expectSame(state.isReading, state.spent <= TURN_COST, "whether it reads");
      expectSame(turn.isOver, !state.isReading, "whether the turn is over");
    }
  }
  for (let left = count; left > 0; left--) iterate();
  for (const { state } of all) expectSame(state.isReading, !state.isStopped, "a connection after all turns");
  return `${count} connections`;
}

function sizeOf(bytes: number): number {
  return Math.min(FRAME_BYTES, Math.max(0, Math.floor(bytes)));
}

function bytesIn(chunks: readonly Buffer[]): number {
  return chunks.reduce((sum, { length }) => sum + length, 0);
}

const SIZES = [1, 2, 9, 500, 900, 1_023, 1_024, 1_025, 5_000, 16_000, FRAME_BYTES];

function generate(random: Random): FramesCase {
  const step = (): Step => {
    if (random.oneIn(30)) return "end";
    return random.oneIn(3) ? random.pick(CALLS) : random.pick(SIZES);
  };
  return {
    steps: random.list(30, step),
    early: random.oneIn(4) ? random.pick(SIZES) : 0,
    pauseEvery: random.oneIn(2) ? 0 : 1 + random.int(4),
    connections: 1 + random.int(5),
  };
}

export const http2Frames = defineTarget<FramesCase>({
  name: "http2-frames",
  seeds: [
    { steps: [1, 1, "afterReads", 2_000, "end"], early: 0, pauseEvery: 0, connections: 1 },
    { steps: [FRAME_BYTES, 1, "pause", 1, FRAME_BYTES, "resume"], early: 9, pauseEvery: 2, connections: 3 },
  ],
  smokeCases: 4_000,
  generate,
  run: (input) => `${readFrames(input)}, ${takeTurns(input)}`,
});
