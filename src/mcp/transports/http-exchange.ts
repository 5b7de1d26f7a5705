/**
 * One POST or GET at a streamable HTTP server while its answer is read: what is known of it, when it may be asked
 * for again, and the headers that go with it.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import type { InOrder } from "../../base/in-order.ts";
import { isHeaderValue } from "../../http/headers.ts";
import type { HttpCall } from "../../http/http-client.ts";
import type { SseEvent } from "../../http/sse.ts";
import { find, slice } from "../../json/json-text.ts";
import type { Era } from "../protocol/era.ts";
import { MIRRORED, mirrorHeader } from "../protocol/mirror-headers.ts";
import type { Outgoing } from "./channel.ts";
import type { RemoteServer } from "./remote-server.ts";

const FIRST_RETRY_MS = 1_000;
/** A server may ask for less; one that ends its streams at once would keep us busy. */
const MIN_RETRY_MS = 100;
const MAX_RETRY_MS = 30_000;

export interface HttpExchange {
  call: HttpCall | undefined;
  /** Undefined where no answer is expected. */
  readonly wireId: number | undefined;
  isAnswered: boolean;
  lastEventId: string | undefined;
  retryMs: number;
  resumes: number;
  timer: Timer | undefined;
  /** From the first large message on. */
  texts: InOrder | undefined;
}

export function createExchange(wireId: number | undefined): HttpExchange {
  return {
    call: undefined,
    wireId,
    isAnswered: wireId === undefined,
    lastEventId: undefined,
    retryMs: FIRST_RETRY_MS,
    resumes: 0,
    timer: undefined,
    texts: undefined,
  };
}

/** The server may free its session; whether it does is not waited for long. */
export function endSession(server: RemoteServer, clock: Clock, headers: readonly string[]): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.after(FIRST_RETRY_MS, resolve);
    const done = (): void => {
      timer.cancel();
      resolve();
    };
    const ignore = (): void => undefined;
    const handler = { head: ignore, event: ignore, body: ignore, mayRead: () => true, end: done, error: done };
    server.send({ method: "DELETE", headers }, handler);
  });
}

/** What an event says about going on after a break. */
export function noteEvent(exchange: HttpExchange, event: SseEvent): void {
  // It goes back in a header.
  if (event.id !== undefined && isHeaderValue(event.id)) exchange.lastEventId = event.id;
  if (event.retry !== undefined) exchange.retryMs = Math.max(MIN_RETRY_MS, Math.min(MAX_RETRY_MS, event.retry));
}

/** `forwarded` are the client's own: name, value, … */
export function protocolHeaders(
  message: Outgoing,
  forwarded: readonly string[],
  era: Era,
  version: string | undefined,
  sessionId: string | undefined,
): string[] {
  const headers: string[] = [...forwarded];
  if (version !== undefined) headers.push("mcp-protocol-version", version);
  if (era === "legacy") {
    if (sessionId !== undefined) headers.push("mcp-session-id", sessionId);
    return headers;
  }
  if (message.method !== undefined) headers.push("mcp-method", message.method);
  const member = message.method === undefined ? undefined : MIRRORED.get(message.method);
  const name = member && find(message.text, 0, "params", member);
  const value = name && (JSON.parse(slice(message.text, name)) as unknown);
  if (typeof value === "string") headers.push("mcp-name", mirrorHeader(value));
  return headers;
}
