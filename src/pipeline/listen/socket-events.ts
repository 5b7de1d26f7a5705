/**
 * The events of a client's socket, told to its connection without a closure for each: ten thousand idle connections
 * share these functions. What the connection throws ends it, and nothing else.
 */
import type { Socket } from "node:net";
import { readOpened, socketReader } from "../../http/h1/socket-reads.ts";

export interface SocketReceiver {
  received(chunk: Buffer): void;
  /** The client sends no more. */
  receivedEnd(): void;
  /** The client takes more. */
  drained(): void;
  closed(): void;
  /** One of these threw: the connection must end. */
  unexpected(error: unknown): void;
}

const RECEIVER = Symbol("receiver");
const HANDED_OVER = Symbol("handed over");

interface ReceivedSocket extends Socket {
  [RECEIVER]?: SocketReceiver;
  [HANDED_OVER]?: true;
}

/** In place of `data` events. Whoever has it now listens to those. */
const reader = socketReader(function (this: ReceivedSocket, chunk) {
  if (this[HANDED_OVER] === true) return this.push(chunk);
  onData.call(this, chunk);
  return true;
});

export function listenTo(socket: ReceivedSocket, receiver: SocketReceiver): void {
  socket[RECEIVER] = receiver;
  if (!readOpened(socket, reader)) socket.on("data", onData);
  socket.on("end", onEnd);
  socket.on("drain", onDrain);
  socket.on("error", ignore);
  socket.on("close", onClose);
}

/** Somebody else reads and writes from now on; the end of the connection is still told. */
export function handOver(socket: ReceivedSocket): void {
  socket[HANDED_OVER] = true;
  socket.off("data", onData);
  socket.off("end", onEnd);
  socket.off("drain", onDrain);
}

/** Runs what is done for a connection later than its events. */
export function contain<Receiver extends SocketReceiver>(receiver: Receiver, action: (one: Receiver) => void): void {
  try {
    action(receiver);
  } catch (error) {
    receiver.unexpected(error);
  }
}

function onData(this: ReceivedSocket, chunk: Buffer): void {
  const receiver = this[RECEIVER];
  try {
    receiver?.received(chunk);
  } catch (error) {
    receiver?.unexpected(error);
  }
}

function onEnd(this: ReceivedSocket): void {
  const receiver = this[RECEIVER];
  if (receiver) contain(receiver, (one) => one.receivedEnd());
}

function onDrain(this: ReceivedSocket): void {
  const receiver = this[RECEIVER];
  if (receiver) contain(receiver, (one) => one.drained());
}

function onClose(this: ReceivedSocket): void {
  const receiver = this[RECEIVER];
  if (receiver) contain(receiver, (one) => one.closed());
}

function ignore(): void {
  // The close event that follows says what there is to say.
}
