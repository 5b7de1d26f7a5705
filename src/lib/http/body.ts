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
