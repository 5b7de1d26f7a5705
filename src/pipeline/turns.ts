/**
 * Requests that a client sends ahead of the answers wait for their turn: one connection must not be able to open
 * any number of connections to a backend.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";

export interface Turns {
  /** Begins later, when the answers before it are out; never, if the connection ends first. */
  hold(socket: Socket, res: ServerResponse, begin: () => void): void;
  /** An answer on this connection has ended. */
  next(socket: Socket): void;
}

export function createTurns(): Turns {
  const ahead = new Map<Socket, (() => void)[]>();
  return {
    hold(socket, res, begin) {
      const turn = (): void => {
        // Without its socket the connection was closed after the answer before.
        if (res.socket !== null) begin();
      };
      const waiting = ahead.get(socket);
      if (waiting) waiting.push(turn);
      else {
        ahead.set(socket, [turn]);
        socket.once("close", () => ahead.delete(socket));
      }
      // What was read already is bounded by the size of one read.
      socket.pause();
    },
    next(socket) {
      if (ahead.size === 0) return;
      const waiting = ahead.get(socket);
      const turn = waiting?.shift();
      if (waiting?.length === 0) {
        ahead.delete(socket);
        socket.resume();
      }
      turn?.();
    },
  };
}
