/**
 * Defines the client side of an exchange, to which the pipeline writes the response.
 */
import type { Duplex } from "node:stream";
import type { HeaderList } from "../http/headers.ts";

export interface ClientSink {
  head(status: number, headers: HeaderList): void;
  /** Returns false if the client's buffer is full. `onDrain` follows. */
  write(chunk: Buffer): boolean;
  end(lastChunk?: Buffer, trailers?: readonly string[]): void;
  /** Ends the response abruptly, so that the client detects an incomplete response. */
  destroy(): void;
  /** Connects the client's socket to the backend's socket after a 101. */
  upgrade(status: number, headers: HeaderList, socket: Duplex): void;
  /** Sends `100 Continue` if the client waits for it. */
  askForBody(): void;
  /**
   * Returns true if the body is incomplete, and bytes arrived since the last call or everything received was consumed.
   */
  isUploading(): boolean;
  onDrain: (() => void) | undefined;
  /** Called if the client stops sending its body before a response has started. */
  onStalled: (() => void) | undefined;
  /** Called once, when the connection has closed or the complete response has been written. */
  onClose: ((complete: boolean) => void) | undefined;
}
