/**
 * Reads bodies from streams: whole up to a limit, exactly as long as announced, or only how they begin. What is larger
 * than its limit is rejected as soon as the limit is passed, and never held.
 */

import { ExpectedError } from "../text/expected-error.ts";
import type { BodyStream, RequestBodyStream } from "./body-stream.ts";

export class BodyTooLarge extends ExpectedError {
  constructor(maxBytes: number) {
    super(`the body is larger than ${maxBytes} bytes`);
    this.name = "BodyTooLarge";
  }
}

/** The sender left, or its connection failed. */
export class BodyIncomplete extends ExpectedError {
  constructor(cause?: unknown) {
    super("the connection closed before the body was complete", { cause });
    this.name = "BodyIncomplete";
  }
}

export interface BodyEvents {
  data(chunk: Buffer): void;
  end(): void;
  failed(error: Error): void;
}

/** Reports a stream's chunks, then its end or a BodyIncomplete, once. The returned function stops that. */
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

/** With the length announced, the buffer is made once: 20 MB of images are then held once and not twice. */
export function readAll(stream: BodyStream, maxBytes: number, length?: number): Promise<Buffer> {
  const whole = length === undefined || length > maxBytes ? undefined : Buffer.allocUnsafeSlow(length);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const stop = followBody(stream, {
      data(chunk) {
        const start = bytes;
        bytes += chunk.length;
        if (bytes > (length ?? maxBytes) || bytes > maxBytes) {
          stop();
          stream.pause();
          reject(new BodyTooLarge(length ?? maxBytes));
        } else if (whole) chunk.copy(whole, start);
        else chunks.push(chunk);
      },
      end() {
        if (whole && bytes !== length) reject(new BodyIncomplete());
        else resolve(whole ?? (chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)));
      },
      failed: reject,
    });
  });
}

/** Reads a body whose length is known; no promise, because every small request passes here. */
export function readExactly(
  stream: BodyStream,
  length: number,
  done: (error: Error | undefined, bytes: Buffer) => void,
): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const stop = (error: Error | undefined): void => {
    stream.off("data", onData);
    stream.off("close", onClose);
    stream.off("error", onError);
    done(error, chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));
  };
  const onData = (chunk: Buffer): void => {
    bytes += chunk.length;
    chunks.push(chunk);
    // The parser delivers exactly the announced length; the stream's own end need not be waited for.
    if (bytes >= length) stop(undefined);
  };
  const onClose = (): void => stop(new BodyIncomplete());
  const onError = (error: Error): void => stop(new BodyIncomplete(error));
  // No piece will come that could end the wait.
  if (length === 0) {
    process.nextTick(stop, undefined);
    return;
  }
  stream.on("data", onData);
  stream.on("close", onClose);
  stream.on("error", onError);
}

/**
 * The first piece of a body, which stays in the stream; undefined if there is none. For those who must know how a body
 * begins, and need not hold it.
 */
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
 * Sees chunks as their reader gets them. A second `data` listener would start the stream before the reader is
 * ready, and a stream in between would buffer more: so the event itself is looked at.
 */
export function observeChunks(stream: BodyStream, seen: (chunk: Buffer) => void): void {
  const emit = stream.emit.bind(stream);
  stream.emit = (event: string | symbol, ...values: unknown[]): boolean => {
    if (event === "data") seen(values[0] as Buffer);
    return emit(event, ...values);
  };
}
