/**
 * Implements a WebSocket client for binary messages.
 */
import { Agent, WebSocket } from "undici";
import type { TlsOptions } from "./http-client.ts";

const CONNECT_TIMEOUT_MS = 10_000;

export interface WebSocketOptions {
  readonly url: string;
  readonly protocols: readonly string[];
  readonly headers: Readonly<Record<string, string>>;
  readonly tls?: TlsOptions;
}

export interface WebSocketHandler {
  message(bytes: Buffer): void;
  /** Called once, when an open WebSocket was closed by either side. */
  closed(reason: string): void;
}

export interface OpenWebSocket {
  send(bytes: Buffer): void;
  close(): void;
}

export function openWebSocket(options: WebSocketOptions, handler: WebSocketHandler): Promise<OpenWebSocket> {
  const { tls } = options;
  const dispatcher = new Agent({
    connect: {
      timeout: CONNECT_TIMEOUT_MS,
      ...(tls?.ca === undefined ? {} : { ca: tls.ca }),
      ...(tls?.cert === undefined ? {} : { cert: tls.cert }),
      ...(tls?.key === undefined ? {} : { key: tls.key }),
      ...(tls?.servername === undefined ? {} : { servername: tls.servername }),
      ...(tls?.insecure ? { rejectUnauthorized: false } : {}),
    },
  });
  const socket = new WebSocket(options.url, {
    protocols: [...options.protocols],
    headers: options.headers,
    dispatcher,
  });
  socket.binaryType = "arraybuffer";

  return new Promise((resolve, reject) => {
    let isOpen = false;
    socket.addEventListener("open", () => {
      isOpen = true;
      resolve({ send: (bytes) => socket.send(bytes), close: () => socket.close() });
    });
    socket.addEventListener("message", ({ data }) => {
      handler.message(Buffer.from(data as ArrayBuffer));
    });
    socket.addEventListener("error", (event) => {
      if (!isOpen) reject(new Error(event.message || "the WebSocket could not be opened"));
    });
    socket.addEventListener("close", ({ reason, code }) => {
      dispatcher.destroy().catch(() => undefined);
      if (isOpen) handler.closed(reason || `code ${code}`);
      else reject(new Error(reason || "the server rejected the WebSocket"));
    });
  });
}
