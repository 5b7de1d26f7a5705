/**
 * Writes a request body that is still arriving, as fast as the backend takes it and no faster.
 */
import type { Writable } from "node:stream";
import type { BodyStream } from "../body-stream.ts";

export interface BodyWriter {
  /** Stops reading; the rest of the body is not wanted any more. */
  stop(): void;
}

/** `chunked` frames every piece; otherwise exactly `length` bytes must come. */
export function writeBody(
  body: BodyStream,
  socket: Writable,
  length: number | undefined,
  done: (error: Error | undefined) => void,
): BodyWriter {
  let written = 0;
  let isOver = false;

  function finish(error: Error | undefined): void {
    if (isOver) return;
    isOver = true;
    body.off("data", onData);
    body.off("end", onEnd);
    body.off("error", onError);
    body.off("close", onClose);
    socket.off("drain", onDrain);
    done(error);
  }

  function onData(chunk: Buffer): void {
    written += chunk.length;
    if (length !== undefined && written > length) {
      finish(new Error("the body is longer than its content-length"));
      return;
    }
    if (chunk.length === 0) return;
    let more: boolean;
    if (length === undefined) {
      socket.cork();
      socket.write(`${chunk.length.toString(16)}\r\n`, "latin1");
      socket.write(chunk);
      more = socket.write("\r\n", "latin1");
      process.nextTick(uncork, socket);
    } else more = socket.write(chunk);
    if (!more) body.pause();
  }

  function onDrain(): void {
    body.resume();
  }

  function onEnd(): void {
    if (isOver) return;
    if (length !== undefined && written !== length) finish(new Error("the body is shorter than its content-length"));
    else {
      if (length === undefined) socket.write("0\r\n\r\n", "latin1");
      finish(undefined);
    }
  }

  function onError(error: Error): void {
    finish(error);
  }

  function onClose(): void {
    finish(new Error("the client's connection closed before its body was complete"));
  }

  body.on("data", onData);
  body.on("end", onEnd);
  body.on("error", onError);
  body.on("close", onClose);
  socket.on("drain", onDrain);
  // An end that was missed would be waited for in vain. Later, because `done` must not come before the writer is held.
  if (body.readableEnded) process.nextTick(onEnd);
  else if (body.destroyed) process.nextTick(onClose);
  return {
    stop() {
      if (isOver) return;
      finish(undefined);
      body.resume();
    },
  };
}

function uncork(socket: Writable): void {
  socket.uncork();
}
