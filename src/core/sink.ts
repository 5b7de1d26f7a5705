/**
 * The client side of an exchange: the pipeline writes the response head, the body and the end to it. The listener
 * implements it for HTTP/1 and HTTP/2.
 */
import type { Duplex } from "node:stream";
import type { HeaderList } from "../http/headers.ts";

export interface ClientSink {
  head(status: number, headers: HeaderList): void;
  /** Returns false when the client's buffer is full; `onDrain` follows. */
  write(chunk: Buffer): boolean;
  end(lastChunk?: Buffer, trailers?: readonly string[]): void;
  /** Closes the connection abruptly, so that the client detects an incomplete response. */
  destroy(): void;
  /** Connects the client's socket to the backend's after a 101. */
  upgrade(status: number, headers: HeaderList, socket: Duplex): void;
  /** Sends `100 Continue` if the client waits for it. */
  askForBody(): void;
  /** Whether the request body makes progress: bytes arrived since the last call, or everything received was consumed. */
  isUploading(): boolean;
  onDrain: (() => void) | undefined;
  /** The client stopped sending its body before a response was started. */
  onStalled: (() => void) | undefined;
  /** The connection closed, or the complete response was written; called once. */
  onClose: ((complete: boolean) => void) | undefined;
}
