/**
 * What a link to a server needs from outside (its environment), whom it tells (its owner), and what a handshake may
 * do with a new connection.
 */

import type { Clock } from "../../base/clock.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { Logger } from "../../observe/log/logger.ts";
import type { LoginRequired, ServerError } from "../protocol/call.ts";
import type { Era } from "../protocol/era.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { Channel, ChannelHandlers } from "../transports/channel.ts";
import type { Listener } from "./conversation.ts";

export interface LinkEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly targetName: string;
  requestTimeoutMs(): number;
  /** A handshake succeeded. */
  up(): void;
  /** The access token that goes with every message, where the gateway holds one for the user. */
  authorization?(): string | undefined;
  /** What of a client's HTTP headers goes to the target: name, value, … */
  forwarded(headers: HeaderList): readonly string[] | undefined;
  /** Brings up a connection now or soon; `refused` if it cannot be. Returns how to give up waiting. */
  connect(
    handlers: ChannelHandlers,
    opened: (channel: Channel, started: () => void) => void,
    refused: (reason: string, error: ServerError) => void,
  ): () => void;
}

export interface LinkOwner extends Listener {
  /** Runs on every new connection before calls pass; ends with `ready` or `refuse`. */
  handshake(io: Handshaking): void;
  /** The connection ended or did not come about; calls in flight have failed. */
  lost(loss: Loss): void;
}

export interface Loss {
  /** Completes "target x …". */
  readonly reason: string;
  readonly error: ServerError | LoginRequired;
  /** How often in a row the server could not be brought up. */
  readonly failedStarts: number;
  /** The last lines that its process wrote, where it is one. */
  readonly stderr: readonly string[];
}

export interface Handshaking {
  /** What both sides agreed on: it goes into the headers of HTTP. */
  speak(era: Era, version: string): void;
  /** `answer` is undefined if there is none; the reason then completes "target x …". */
  request(
    method: string,
    params: string,
    done: (answer: ServerMessage | undefined, reason: string, error?: LoginRequired) => void,
  ): void;
  notify(method: string, params: string): void;
  ready(): void;
  /** The server is there but will not do; the reason completes "target x …". */
  refuse(reason: string, error?: LoginRequired): void;
}

/** Headers with the access token, where there is one: name, value, … */
export function withToken(
  headers: readonly string[] | undefined,
  token: string | undefined,
): readonly string[] | undefined {
  return token === undefined ? headers : [...(headers ?? []), "authorization", `Bearer ${token}`];
}
