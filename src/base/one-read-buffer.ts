/**
 * The sockets of a thread read into one buffer: those to backends, and plain ones of clients and children. Node allocates 64 KiB for each read and gives back what was not used, and
 * passes what came through a stream: for the small reads of requests, answers and lines a copy out of a buffer that stays
 * costs a fraction. A chunk is never a part of that buffer, except for who borrows it: whoever gets one may keep it.
 */
import { type OnReadOpts, Socket } from "node:net";

/** What one read brings at most: as much as Node reads by itself. */
const READ_BYTES = 64 * 1024;

const buffer = Buffer.allocUnsafeSlow(READ_BYTES);

/**
 * The bytes are borrowed: after the call they are others. Returns false to stop reading; `resume()` or a reader of the socket
 * goes on.
 */
export type Received = (bytes: Buffer) => boolean;

/** For a socket that we open: an option of `connect`. */
export function readInto(received: Received): OnReadOpts {
  return { buffer, callback: (size) => received(bytesRead(size)) };
}

/** Made once, for all sockets that are read alike; it is called on the socket. */
export type SocketReader = (this: Socket, size: number) => boolean;

export function socketReader(received: (this: Socket, chunk: Buffer) => boolean): SocketReader {
  return function (size) {
    return received.call(this, copied(bytesRead(size)));
  };
}

/** For who keeps nothing of the bytes: they are those of the buffer, and others after the call. */
export function borrowingReader(received: Received): SocketReader {
  return (size) => received(bytesRead(size));
}

/** The handle of a plain socket, as far as it is used here. */
interface Handle {
  useUserBuffer?: (buffer: Buffer) => void;
}

/**
 * For a socket that Node opened (accepted, or of a child), for which there is no option: it is given what the option would
 * have given it, under the names that Node has for them. Returns false where they are not known or the socket has TLS: then it is
 * read as ever, by its `data` events.
 */
export function readOpened(socket: Socket, reader: SocketReader): boolean {
  const { _handle: handle } = socket as unknown as { _handle?: Handle | null };
  if (NAMES === undefined || Object.getPrototypeOf(socket) !== Socket.prototype) return false;
  if (typeof handle?.useUserBuffer !== "function") return false;
  Object.assign(socket, { [NAMES.buffer]: buffer, [NAMES.callback]: reader });
  handle.useUserBuffer(buffer);
  socket.resume();
  return true;
}

/** Bytes that may be kept. */
export function copied(bytes: Buffer): Buffer {
  const chunk = Buffer.allocUnsafe(bytes.length);
  chunk.set(bytes);
  return chunk;
}

/** Most reads are small, and of the same sizes again and again. */
const BEGINNINGS: (Buffer | undefined)[] = new Array<Buffer | undefined>(2048).fill(undefined);

function bytesRead(size: number): Buffer {
  if (size >= BEGINNINGS.length) return buffer.subarray(0, size);
  const known = BEGINNINGS[size];
  if (known !== undefined) return known;
  const made = buffer.subarray(0, size);
  BEGINNINGS[size] = made;
  return made;
}

/** Where a socket keeps its `onread` option: every socket has these properties, most of them empty. */
const NAMES = namesOf(new Socket());

function namesOf(socket: Socket): { readonly buffer: symbol; readonly callback: symbol } | undefined {
  const find = (name: string): symbol | undefined =>
    Object.getOwnPropertySymbols(socket).find((symbol) => symbol.description === name);
  const buffer = find("kBuffer");
  const callback = find("kBufferCb");
  return buffer === undefined || callback === undefined || find("kBufferGen") === undefined
    ? undefined
    : { buffer, callback };
}
