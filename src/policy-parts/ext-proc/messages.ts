/**
 * Converts requests and responses of the gateway to messages of the external processing protocol, and applies what the
 * processor sends.
 */

import type { Exchange, GatewayResponse } from "../../core/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import type { HeaderList } from "../../http/headers.ts";
import { pathAndQuery } from "../../http/request-path.ts";
import type { Immediate } from "./changes.ts";

type Field = readonly [name: string, value: string];

/** `headers` are the request's, or a copy of them with fewer cookies. */
export function requestFields({ request }: Exchange, headers: HeaderList): Field[] {
  return [
    [":method", request.method],
    [":path", pathAndQuery(request)],
    [":authority", request.host],
    [":scheme", request.scheme],
    ...[...headers.entries()].filter(([name]) => name !== "host"),
  ];
}

export function responseFields({ status, headers }: GatewayResponse): Field[] {
  return [[":status", String(status)], ...headers.entries()];
}

/** These responses have no body (RFC 9110 section 6.4.1). */
export function hasNoBody(method: string, status: number): boolean {
  return method === "HEAD" || status === 204 || status === 304;
}

export function replaceBody({ request }: Exchange, bytes: Buffer): void {
  request.body = { kind: "bytes", bytes };
  for (const name of ["content-encoding", "transfer-encoding", "content-length"]) request.headers.delete(name);
}

export function immediateReply(
  exchange: Exchange,
  { status, headers, body, details }: Immediate,
  message: string,
): Reply {
  if (status >= 400)
    exchange.failure ??= {
      code: "authorization_denied",
      source: "client",
      message,
      detail: details === "" ? undefined : details,
    };
  if (body.length > 0 && !headers.has("content-type")) headers.add("content-type", "text/plain; charset=utf-8");
  return { status, headers, body };
}
