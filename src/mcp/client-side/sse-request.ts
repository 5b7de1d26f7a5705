/**
 * Finds the session of a message that a client of the deprecated HTTP+SSE transport sends.
 */
import { readForm } from "../../base/form.ts";
import type { GatewayRequest } from "../../core/exchange.ts";
import { type ClientMessage, INVALID_REQUEST } from "../protocol/json-rpc.ts";
import type { Session } from "../session/session.ts";
import {
  type ClientMessages,
  isBatch,
  QUERY,
  RequestRejection,
  SESSION_NOT_FOUND,
  SESSION_PARAMETER,
} from "./http-request.ts";

/** The path is relative to the origin of the client's request. */
export function streamEndpoint(request: GatewayRequest, session: Session): string {
  const query = readForm(QUERY, request.query);
  query.set(SESSION_PARAMETER, session.id);
  return `${request.path}?${query.toString()}`;
}

export function requireStream(request: GatewayRequest, find: (id: string) => Session | undefined): Session {
  const session = find(readForm(QUERY, request.query).get(SESSION_PARAMETER) ?? "");
  if (session === undefined) throw new RequestRejection(404, SESSION_NOT_FOUND, "Session not found");
  return session;
}

export function singleMessage(parsed: ClientMessages): ClientMessage {
  if (isBatch(parsed))
    throw new RequestRejection(400, INVALID_REQUEST, "Invalid Request: this transport has no batches");
  return parsed;
}
