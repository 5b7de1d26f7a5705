/**
 * The client's side of an exchange, as the pipeline sees it: a head, chunks, an end. Only the listener knows the
 * server library behind it.
 */
import type { Duplex } from "node:stream";
import type { HeaderList } from "../http/headers.ts";

export interface ClientSink {
  head(status: number, headers: HeaderList): void;
  /** Returns false when the client is slower than we are: `onDrain` follows. */
  write(chunk: Buffer): boolean;
  end(lastChunk?: Buffer, trailers?: readonly string[]): void;
  /** Cuts the connection, so that the client cannot take what it got for the whole. */
  destroy(): void;
  /** Joins the client's connection with the backend's after a 101. */
  upgrade(status: number, headers: HeaderList, socket: Duplex): void;
  /** Tells a client that waits for `100 Continue` to send its body. */
  askForBody(): void;
  /** The request's body is on its way: bytes came since the last look, or all that came was taken. */
  isUploading(): boolean;
  onDrain: (() => void) | undefined;
  /** The client stopped sending its body before anything was answered. */
  onStalled: (() => void) | undefined;
  /** The connection ended, or the response was handed over completely; called once. */
  onClose: ((complete: boolean) => void) | undefined;
}
