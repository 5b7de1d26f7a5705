/**
 * A provider on a plain socket that follows a script: it writes a response in pieces and can stop at any byte by
 * closing, resetting or stalling. It records each call, so that tests can check that unneeded calls were closed.
 */

import type { AddressInfo } from "node:net";
import { createServer, type Socket } from "node:net";

export interface Script {
  /** The whole HTTP response, head and body. */
  readonly bytes: Buffer;
  /** How many bytes go out before the fault; all of them if undefined. */
  readonly stopAt?: number;
  /** What happens there. */
  readonly fault?: "close" | "reset" | "hang";
  /** Bytes per write; everything at once if undefined. */
  readonly pieceBytes?: number;
}

export interface ProviderCall {
  readonly body: string;
  readonly script: Script;
  /** The gateway has taken the whole answer. */
  isWhole: boolean;
  /** The connection is closed. */
  isClosed: boolean;
  readonly closed: Promise<void>;
  /** The script is played to its end or its fault. */
  readonly stopped: Promise<void>;
}

export interface FaultyProvider {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  readonly calls: ProviderCall[];
  /** Resolves when it is called the next time. */
  called(): Promise<ProviderCall>;
  close(): Promise<void>;
}

export async function startFaultyProvider(
  scriptOf: (body: string) => Script,
  onCall: (call: ProviderCall) => void = () => undefined,
): Promise<FaultyProvider> {
  const calls: ProviderCall[] = [];
  const sockets = new Set<Socket>();
  let waiting: ((call: ProviderCall) => void)[] = [];
  const server = createServer((socket) => {
    sockets.add(socket);
    const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    void closed.then(() => sockets.delete(socket));
    socket.on("error", () => undefined);
    let held = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      held = Buffer.concat([held, chunk]);
      const end = held.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(held.toString("latin1", 0, end))?.[1] ?? 0);
      if (held.length < end + 4 + length) return;
      const body = held.toString("utf8", end + 4, end + 4 + length);
      held = held.subarray(end + 4 + length);
      let stop = (): void => undefined;
      const stopped = new Promise<void>((resolve) => {
        stop = resolve;
      });
      const call: ProviderCall = { body, script: scriptOf(body), isWhole: false, isClosed: false, closed, stopped };
      void closed.then(() => {
        call.isClosed = true;
      });
      calls.push(call);
      onCall(call);
      play(socket, call, stop);
      for (const resolve of waiting) resolve(call);
      waiting = [];
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    called: () => new Promise((resolve) => waiting.push(resolve)),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** One piece per turn of the loop, as fast as the gateway reads. */
function play(socket: Socket, call: ProviderCall, stopped: () => void): void {
  const { bytes, fault, pieceBytes = bytes.length } = call.script;
  const end = fault === undefined ? bytes.length : Math.min(call.script.stopAt ?? 0, bytes.length);
  let at = 0;
  const step = (): void => {
    if (socket.destroyed) return;
    if (at >= end) {
      stopped();
      if (fault === undefined) call.isWhole = true;
      else if (fault === "close") socket.destroySoon();
      else if (fault === "reset") socket.resetAndDestroy();
      return;
    }
    const piece = bytes.subarray(at, Math.min(end, at + Math.max(1, pieceBytes)));
    at += piece.length;
    if (socket.write(piece)) setImmediate(step);
    else socket.once("drain", step);
  };
  step();
}
