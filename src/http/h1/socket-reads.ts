/**
 * Reads sockets into one buffer that all sockets of a thread share, which avoids an allocation for each read. Accepted
 * sockets and pipes of children have no documented option for this, so `readOpened` sets the properties that Node's
 * `onread` option sets.
 */
import { type OnReadOpts, Socket } from "node:net";
import { fairReads, READ_BYTES } from "./fair-reads.ts";

const buffer = Buffer.allocUnsafeSlow(READ_BYTES);

let isFast = true;

/** Applies to sockets opened afterwards. */
export function setFastReads(enabled: boolean): void {
  isFast = enabled;
}

/**
 * The buffer is reused, so copy the bytes you need before returning. Returns false to stop reading until `resume()`.
 */
export type Received = (bytes: Buffer) => boolean;

/**
 * Returns the `connect` options that deliver a socket's bytes to `received`. Call `readConnecting` with the socket.
 */
export function readOptions(received: Received | undefined): { onread?: OnReadOpts } {
  if (received === undefined || !isFast) return {};
  return { onread: { buffer, callback: borrowingReader(received) } };
}

/** Delivers the bytes of a socket to `received` if its options (`readOptions`) do not. */
export function readConnecting(socket: Socket, received: Received, options: { onread?: OnReadOpts }): void {
  if (options.onread === undefined) socket.on("data", received);
}

/** The socket is `this`, so that one function serves all sockets. */
export type SocketReader = (this: Socket, size: number) => boolean;

export function socketReader(received: (this: Socket, chunk: Buffer) => boolean): SocketReader {
  return function (size) {
    return received.call(this, copied(bytesRead(size))) && fairReads.mayReadOn(this, size);
  };
}

/** The receiver must not keep the bytes, which are a view of the shared buffer. */
export function borrowingReader(received: Received): SocketReader {
  return function (size) {
    return received(bytesRead(size)) && fairReads.mayReadOn(this, size);
  };
}

interface Handle {
  useUserBuffer?: (buffer: Buffer) => void;
}

/**
 * Reads a socket that Node opened (accepted, or a pipe of a child). Returns false if fast reads are disabled, the
 * socket uses TLS, or this version of Node lacks one of the properties. The caller must then listen to `data` events.
 */
export function readOpened(socket: Socket, reader: SocketReader): boolean {
  const { _handle: handle } = socket as unknown as { _handle?: Handle | null };
  if (!isFast || ONREAD_PROPERTIES === undefined || Object.getPrototypeOf(socket) !== Socket.prototype) return false;
  if (typeof handle?.useUserBuffer !== "function") return false;
  Object.assign(socket, { [ONREAD_PROPERTIES.buffer]: buffer, [ONREAD_PROPERTIES.callback]: reader });
  handle.useUserBuffer(buffer);
  socket.resume();
  return true;
}

export function copied(bytes: Buffer): Buffer {
  const chunk = Buffer.allocUnsafe(bytes.length);
  chunk.set(bytes);
  return chunk;
}

/** Caches views of the buffer by length, because most reads are small and repeat the same sizes. */
const VIEWS: (Buffer | undefined)[] = new Array<Buffer | undefined>(2048).fill(undefined);

function bytesRead(size: number): Buffer {
  if (size >= VIEWS.length) return buffer.subarray(0, size);
  const known = VIEWS[size];
  if (known !== undefined) return known;
  const made = buffer.subarray(0, size);
  VIEWS[size] = made;
  return made;
}

/** Every socket stores its `onread` option in these properties. */
const ONREAD_PROPERTIES = findOnreadProperties(new Socket());

function findOnreadProperties(socket: Socket): { readonly buffer: symbol; readonly callback: symbol } | undefined {
  const find = (name: string): symbol | undefined =>
    Object.getOwnPropertySymbols(socket).find((symbol) => symbol.description === name);
  const buffer = find("kBuffer");
  const callback = find("kBufferCb");
  return buffer === undefined || callback === undefined || find("kBufferGen") === undefined
    ? undefined
    : { buffer, callback };
}
