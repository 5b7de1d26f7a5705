/**
 * Requests of a session that another process opened. Requests and streams bring it up here; answers to questions of servers
 * and notifications are passed on to the processes that hold it; a DELETE ends it without bringing it up.
 */
import type { Exchange } from "../core/exchange.ts";
import { type Demand, isBatch, Refused } from "./client-side/http-request.ts";
import type { Hub } from "./hub.ts";
import { failureHeaders } from "./protocol/call.ts";
import type { ClientMessage } from "./protocol/json-rpc.ts";
import { ownerOf } from "./session/client-group.ts";

type Parsed = ClientMessage | readonly ClientMessage[] | undefined;

/** The id of a session that this process does not hold; undefined if it does, or none is named. */
export function sessionElsewhere({ sessions }: Hub, exchange: Exchange): string | undefined {
  const id = exchange.request.headers.get("mcp-session-id");
  return id === undefined || sessions.find(id, ownerOf(exchange)) ? undefined : id;
}

/** What is to be done instead of what the request says; undefined: as if the session had always been here. */
export async function fromElsewhere(
  hub: Hub,
  exchange: Exchange,
  id: string,
  parsed: Parsed,
): Promise<Demand | undefined> {
  const { resumption } = hub;
  const owner = ownerOf(exchange);
  const { method, headers } = exchange.request;
  if (method === "DELETE") return (await resumption.end(id, owner)) ? { kind: "endedElsewhere" } : undefined;
  const messages = parsed === undefined ? [] : isBatch(parsed) ? parsed : [parsed];
  const requests = messages.filter((message) => message.kind === "request");
  if (method === "POST" && requests.length === 0) {
    const told = messages.filter((message) => message.kind !== "request");
    return (await resumption.tell(id, owner, told)) ? { kind: "dropped" } : undefined;
  }
  // A second handshake is refused, whoever has the session.
  if (requests.some((request) => request.method === "initialize")) return undefined;
  const outcome = await resumption.resume(id, hub.clientOf(exchange), headers);
  if (typeof outcome === "string") return undefined;
  throw new Refused(outcome.status, outcome.code, outcome.message, {
    id: requests[0]?.id,
    headers: failureHeaders(outcome),
    failure: outcome.error === "overloaded" ? "overloaded" : "backend_unavailable",
  });
}
