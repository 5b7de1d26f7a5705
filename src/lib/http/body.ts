/**
 * Reading a stream whole, up to a limit. What is larger is refused as soon as the limit is passed, never held.
 */
import type { Readable } from "node:stream";

export class BodyTooLarge extends Error {
  constructor(maxBytes: number) {
    super(`the body is larger than ${maxBytes} bytes`);
    this.name = "BodyTooLarge";
  }
}

export function readAll(stream: Readable, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const stop = (): void => {
      stream.off("data", onData);
      stream.off("end", onEnd);
      stream.off("error", onError);
      stream.off("close", onClose);
    };
    const onData = (chunk: Buffer): void => {
      bytes += chunk.length;
      if (bytes > maxBytes) {
        stop();
        stream.pause();
        reject(new BodyTooLarge(maxBytes));
      } else chunks.push(chunk);
    };
    const onEnd = (): void => {
      stop();
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));
    };
    const onError = (error: Error): void => {
      stop();
      reject(error);
    };
    const onClose = (): void => onError(new Error("the connection closed before the body was complete"));
    stream.on("data", onData);
    stream.on("end", onEnd);
    stream.on("error", onError);
    stream.on("close", onClose);
  });
}

/** Reads a body whose length is known; no promise, because every small request passes here. */
export function readExactly(
  stream: Readable,
  length: number,
  done: (error: Error | undefined, bytes: Buffer) => void,
): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const stop = (error: Error | undefined): void => {
    stream.off("data", onData);
    stream.off("close", onClose);
    stream.off("error", stop);
    done(error, chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));
  };
  const onData = (chunk: Buffer): void => {
    bytes += chunk.length;
    chunks.push(chunk);
    // The parser delivers exactly the announced length; the stream's own end need not be waited for.
    if (bytes >= length) stop(undefined);
  };
  const onClose = (): void => stop(new Error("the connection closed before the body was complete"));
  stream.on("data", onData);
  stream.on("close", onClose);
  stream.on("error", stop);
}

/**
 * The first piece of a body, which stays in the stream; undefined if there is none. For those who must know how a body
 * begins, and need not hold it.
 */
export function peekFirst(stream: Readable, done: (error: Error | undefined, first: Buffer | undefined) => void): void {
  const stop = (error: Error | undefined, first: Buffer | undefined): void => {
    stream.off("readable", onReadable);
    stream.off("error", onError);
    stream.off("close", onClose);
    // The stream forgets in the next turn that somebody wanted it to stand still; a reader before that would wait in vain.
    setImmediate(done, error, first);
  };
  const onReadable = (): void => {
    const first = stream.read() as Buffer | null;
    if (first !== null) stream.unshift(first);
    else if (!stream.readableEnded && stream.readableLength === 0 && !hasEnded(stream)) return;
    stop(undefined, first ?? undefined);
  };
  const onError = (error: Error): void => stop(error, undefined);
  const onClose = (): void => onError(new Error("the connection closed before the body was complete"));
  stream.on("readable", onReadable);
  stream.on("error", onError);
  stream.on("close", onClose);
}

/** All has arrived, read or not. */
function hasEnded(stream: Readable): boolean {
  return (stream as Readable & { readonly complete?: boolean }).complete === true;
}

/**
 * Sees chunks as their reader gets them. A second `data` listener would start the stream before the reader is
 * ready, and a stream in between would buffer more: so the event itself is looked at.
 */
export function observeChunks(stream: Readable, seen: (chunk: Buffer) => void): void {
  const emit = stream.emit.bind(stream);
  stream.emit = (event: string | symbol, ...values: unknown[]): boolean => {
    if (event === "data") seen(values[0] as Buffer);
    return emit(event, ...values);
  };
}
