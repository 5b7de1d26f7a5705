/**
 * Reads bodies from streams, completely up to a limit, with an exact length, or only the first chunk.
 */
import { ExpectedError } from "../base/errors.ts";
import type { PeerInput } from "../base/peer-inputs.ts";

export class BodyTooLarge extends ExpectedError {
  constructor(maxBytes: number) {
    super(`the body is larger than ${maxBytes} bytes`);
    this.name = "BodyTooLarge";
  }
}

export class BodyIncomplete extends ExpectedError {
  constructor(cause?: unknown) {
    super("the connection closed before the body was complete", { cause });
    this.name = "BodyIncomplete";
  }
}

interface BodyEvents {
  data(chunk: Buffer): void;
  end(): void;
  failed(error: Error): void;
}

/** Reports a stream's chunks, followed by either `end` or a BodyIncomplete. The returned function stops the reports. */
export function followBody(stream: BodyStream, events: BodyEvents): () => void {
  const stop = (): void => {
    stream.off("data", onData);
    stream.off("end", onEnd);
    stream.off("error", onError);
    stream.off("close", onClose);
  };
  const onData = (chunk: Buffer): void => events.data(chunk);
  const onEnd = (): void => {
    stop();
    events.end();
  };
  const onError = (error: Error): void => {
    stop();
    events.failed(new BodyIncomplete(error));
  };
  const onClose = (): void => {
    stop();
    events.failed(new BodyIncomplete());
  };
  stream.on("data", onData);
  stream.on("end", onEnd);
  stream.on("error", onError);
  stream.on("close", onClose);
  return stop;
}

/**
 * Reserves memory for a body. `granted` is called immediately or later. `rejected` may be called at any time until
 * `finish`, even after `granted`.
 */
export interface BodyMemory {
  reserve(bytes: number, granted: () => void, rejected: (error: Error) => void): void;
  finish(): void;
}

export interface ReadOptions {
  readonly memory?: BodyMemory | undefined;
  /** Receives the body so far and the chunk that exceeds the limit, instead of a rejection with BodyTooLarge. */
  tooLarge?(kept: Buffer, chunk: Buffer): Promise<Buffer>;
}

const UNLIMITED: BodyMemory = { reserve: (_bytes, granted) => granted(), finish: () => undefined };

/** Memory for a body of unknown length is reserved in doubling steps, starting with this size. */
const FIRST_RESERVED_BYTES = 64 * 1024;

/** Collects a body in one buffer, because many tiny chunks would take many times the memory of their bytes. */
export class BodyBuffer {
  #whole: Buffer | undefined = undefined;
  #isOwn = false;
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  /** `capacity` is the expected size of the body, if known. */
  add(chunk: Buffer, capacity = 0): void {
    const start = this.#bytes;
    this.#bytes += chunk.length;
    if (this.#whole === undefined && chunk.length >= capacity) {
      // Most bodies arrive in one chunk, which is not copied.
      this.#whole = chunk;
      return;
    }
    const before = this.#whole;
    if (before === undefined || !this.#isOwn || before.length < this.#bytes) {
      const grown = Buffer.allocUnsafeSlow(Math.max(capacity, this.#bytes, 2 * start));
      before?.copy(grown, 0, 0, start);
      this.#whole = grown;
      this.#isOwn = true;
    }
    chunk.copy(this.#whole as Buffer, start);
  }

  take(): Buffer {
    const whole = this.#whole ?? Buffer.alloc(0);
    this.#whole = undefined;
    return whole.length === this.#bytes ? whole : whole.subarray(0, this.#bytes);
  }
}

/**
 * Reads a whole body within the size of the input. While it waits for memory, the stream is not read, which applies
 * backpressure to the sender.
 */
export function readAll(
  stream: BodyStream,
  { maxBytes }: PeerInput,
  length?: number,
  { memory = UNLIMITED, tooLarge }: ReadOptions = {},
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let reservedBytes = length ?? 0;
    let stop: () => void = () => undefined;
    const body = new BodyBuffer();
    const fail = (error: Error): void => {
      stop();
      stream.pause();
      body.take();
      reject(error);
    };
    const reserveMore = (): void => {
      reservedBytes = Math.min(maxBytes, Math.max(2 * reservedBytes, body.bytes, FIRST_RESERVED_BYTES));
      let isGranted = false;
      let isPaused = false;
      const granted = (): void => {
        isGranted = true;
        if (isPaused) stream.resume();
      };
      memory.reserve(reservedBytes, granted, fail);
      if (isGranted) return;
      isPaused = true;
      stream.pause();
    };
    const read = (): void => {
      stop = followBody(stream, {
        data(chunk) {
          if (body.bytes + chunk.length > (length ?? maxBytes)) {
            if (tooLarge === undefined) fail(new BodyTooLarge(length ?? maxBytes));
            else {
              stop();
              resolve(tooLarge(body.take(), chunk));
            }
            return;
          }
          body.add(chunk, length);
          if (body.bytes > reservedBytes) reserveMore();
        },
        end() {
          memory.finish();
          if (length !== undefined && body.bytes !== length) reject(new BodyIncomplete());
          else resolve(body.take());
        },
        failed: reject,
      });
    };
    if (length !== undefined && length > maxBytes) reject(new BodyTooLarge(maxBytes));
    else if (length === undefined) read();
    else memory.reserve(length, read, fail);
  });
}

export function readExactly(
  stream: BodyStream,
  length: number,
  done: (error: Error | undefined, bytes: Buffer) => void,
): void {
  const body = new BodyBuffer();
  const stop = (error: Error | undefined): void => {
    stream.off("data", onData);
    stream.off("close", onClose);
    stream.off("error", onError);
    done(error, body.take());
  };
  const onData = (chunk: Buffer): void => {
    body.add(chunk, length);
    // The parser delivers exactly the declared length, so there is no need to wait for the end of the stream.
    if (body.bytes >= length) stop(undefined);
  };
  const onClose = (): void => stop(new BodyIncomplete());
  const onError = (error: Error): void => stop(new BodyIncomplete(error));
  // A body of length 0 emits no `data` event.
  if (length === 0) {
    process.nextTick(stop, undefined);
    return;
  }
  stream.on("data", onData);
  stream.on("close", onClose);
  stream.on("error", onError);
}

/** Passes the first chunk of a body to `done` without consuming it, or undefined if the body is empty. */
export function peekFirst(
  stream: RequestBodyStream,
  done: (error: Error | undefined, first: Buffer | undefined) => void,
): void {
  const onClose = (): void => done(new BodyIncomplete(), undefined);
  if (stream.destroyed) {
    process.nextTick(onClose);
    return;
  }
  stream.once("close", onClose);
  stream.peek((first) => {
    stream.off("close", onClose);
    done(undefined, first);
  });
}

/**
 * Observes chunks as the reader receives them. It wraps `emit`, because a second `data` listener would start the
 * stream before the reader is ready, and an intermediate stream would buffer more.
 */
export function observeChunks(stream: BodyStream, seen: (chunk: Buffer) => void): void {
  const emit = stream.emit.bind(stream);
  stream.emit = (event: string | symbol, ...values: unknown[]): boolean => {
    if (event === "data") seen(values[0] as Buffer);
    return emit(event, ...values);
  };
}

/** `data` passes a chunk and `error` an error. `end` and `close` pass no value. */
export type BodyListener = (value: Buffer & Error) => void;

/**
 * Defines the subset of Node's Readable that readers of a request body need. `data` is emitted any number of times and
 * then `end`, or `close` or `error` if the body was truncated. Adding the first `data` listener starts reading, but the
 * chunks arrive asynchronously.
 */
export interface BodyStream {
  on(event: string, listener: BodyListener): unknown;
  once(event: string, listener: BodyListener): unknown;
  off(event: string, listener: BodyListener): unknown;
  emit(event: string | symbol, ...values: unknown[]): boolean;
  pause(): unknown;
  resume(): unknown;
  readonly readableEnded: boolean;
  readonly destroyed: boolean;
  /** A reader that forwards the body reports how many bytes of it wait for the receiver. */
  queued?(bytes: number): void;
}

export interface RequestBodyStream extends BodyStream {
  /**
   * Calls back once, asynchronously, with the first chunk, which stays in the stream. The chunk is undefined if the
   * body is empty.
   */
  peek(seen: (first: Buffer | undefined) => void): void;
}
