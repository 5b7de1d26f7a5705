/**
 * Reads the DATA frames of an HTTP/2 stream, and joins small ones. Node reports each frame as a chunk, and one read of
 * the socket may contain thousands. Passing on a chunk takes far longer than reading its frame, and a buffer for each
 * takes many times its bytes. Small chunks are therefore passed on together, in the same iteration of the event loop.
 */
import type { Http2Stream } from "node:http2";
import { JoinedBytes } from "../../base/joined-bytes.ts";

/** Passing on a larger chunk costs little for its size. */
const SMALL_BYTES = 1_024;
const JOINED_BYTES = 16 * 1024;

interface FrameReceiver {
  /** Called for each DATA frame, before its bytes are passed on. */
  frame?(bytes: number): void;
  /** Returns false to stop until `resume`. Must not throw. */
  data(chunk: Buffer): boolean;
}

export class FrameReader {
  readonly #stream: Http2Stream;
  readonly #receiver: FrameReceiver;
  readonly #schedule: (action: () => void) => void;
  readonly #push: (chunk: Buffer | null) => boolean;
  #held: Buffer | undefined = undefined;
  /** Contains the held chunk if there were several. */
  #joined: JoinedBytes | undefined = undefined;
  #isScheduled = false;
  #isPaused = false;
  #hasEnded = false;

  /**
   * The stream emits `end` after all data was passed on, and no `data`. `schedule` calls back after the current reads.
   */
  constructor(stream: Http2Stream, receiver: FrameReceiver, schedule: (action: () => void) => void = setImmediate) {
    this.#stream = stream;
    this.#receiver = receiver;
    this.#schedule = schedule;
    this.#push = stream.push;
    // Node calls `push` for each frame, and stops extending the window of a stream that returns false.
    stream.push = (chunk: Buffer | null) => (chunk === null ? this.#end() : this.#add(chunk));
    if (stream.readableLength > 0) this.#readEarly();
    stream.resume();
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.flush();
    if (this.#isPaused || this.#stream.destroyed) return;
    if (this.#hasEnded) this.#push.call(this.#stream, null);
    else this.#stream._read(0);
  }

  /** Passes on what is held. Call it when the stream is closed, because a stream that is reset does not end. */
  flush(): void {
    while (!this.#isPaused && this.#held !== undefined) this.#passOn(this.#held);
  }

  /** Frames that arrived in one read with the head may precede the event of the stream. */
  #readEarly(): void {
    // The end of such a stream cannot wait until the receiver resumes.
    this.#stream.prependOnceListener("end", () => {
      while (this.#held !== undefined) this.#passOn(this.#held);
    });
    const chunk = this.#stream.read() as Buffer;
    this.#receiver.frame?.(chunk.length);
    this.#held = chunk;
    this.#flushLater();
  }

  #add(chunk: Buffer): boolean {
    this.#receiver.frame?.(chunk.length);
    if (chunk.length >= SMALL_BYTES) this.flush();
    if (!this.#isPaused && chunk.length >= SMALL_BYTES) this.#deliver(chunk);
    else this.#hold(chunk);
    return !this.#isPaused;
  }

  #hold(chunk: Buffer): void {
    if (this.#held === undefined) this.#held = chunk;
    else {
      if (this.#joined === undefined) {
        this.#joined = new JoinedBytes();
        this.#joined.add(this.#held);
      }
      this.#held = this.#joined.add(chunk);
    }
    if (this.#held.length >= JOINED_BYTES) this.flush();
    else if (!this.#isPaused) this.#flushLater();
  }

  #flushLater(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#schedule(() => {
      this.#isScheduled = false;
      this.flush();
    });
  }

  #end(): boolean {
    this.flush();
    if (!this.#isPaused) return this.#push.call(this.#stream, null);
    this.#hasEnded = true;
    return false;
  }

  /** Passes on as much as a frame usually has, because the receiver may pause. */
  #passOn(held: Buffer): void {
    this.#joined = undefined;
    this.#held = held.length > JOINED_BYTES ? held.subarray(JOINED_BYTES) : undefined;
    this.#deliver(held.length > JOINED_BYTES ? held.subarray(0, JOINED_BYTES) : held);
  }

  #deliver(chunk: Buffer): void {
    if (!this.#receiver.data(chunk)) this.#isPaused = true;
  }
}
