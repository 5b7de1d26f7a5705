/**
 * The old HTTP+SSE transport (2024-11-05) towards clients: a GET at a path that ends in `/sse` opens the event
 * stream and names the endpoint for messages, which is the same path with the session in its query.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import { type ClientMessage, INVALID_REQUEST } from "../protocol/json-rpc.ts";
import type { Session } from "../session/session.ts";
import { isBatch, Refused } from "./downstream.ts";

const PARAMETER = "sessionId";
const SESSION_NOT_FOUND = -32001;

/** Whether a request belongs to that transport; a POST without a session is streamable HTTP at the same path. */
export function isOldTransport(request: GatewayRequest): boolean {
  if (!request.path.endsWith("/sse")) return false;
  if (request.method === "POST") return new URLSearchParams(request.query).has(PARAMETER);
  return request.method === "GET" && !request.headers.has("mcp-session-id");
}

/** Where the client shall post to: relative to the origin it knows. */
export function endpointOf(request: GatewayRequest, session: Session): string {
  const query = new URLSearchParams(request.query);
  query.set(PARAMETER, session.id);
  return `${request.path}?${query.toString()}`;
}

/** Throws Refused. */
export function requireStream(request: GatewayRequest, find: (id: string) => Session | undefined): Session {
  const session = find(new URLSearchParams(request.query).get(PARAMETER) ?? "");
  if (session === undefined) throw new Refused(404, SESSION_NOT_FOUND, "Session not found");
  return session;
}

/** That transport has no batches. Throws Refused. */
export function singleMessage(parsed: ClientMessage | readonly ClientMessage[]): ClientMessage {
  if (isBatch(parsed)) throw new Refused(400, INVALID_REQUEST, "Invalid Request: this transport has no batches");
  return parsed;
}
