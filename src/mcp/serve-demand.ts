/**
 * What a client's request wants of an MCP backend, done: by the session that it belongs to, or by the hub.
 */
import type { BackendCall, BackendRun } from "../core/backend.ts";
import type { Exchange } from "../core/exchange.ts";
import { HeaderList } from "../http/headers.ts";
import { sendJson } from "./aggregation/router.ts";
import type { Demand } from "./client-side/downstream.ts";
import { ownResult } from "./client-side/stateless.ts";
import type { Hub } from "./hub.ts";
import { type ClientMessage, resultText } from "./protocol/json-rpc.ts";
import { RelayedCall } from "./relayed-call.ts";
import { type ReportEnv, RequestReport } from "./report.ts";
import { SUCCEEDED } from "./session/call-outcome.ts";
import { KEEP_ALIVE_MS } from "./session/event-stream.ts";
import type { Session } from "./session/session.ts";

/** How long after its expiry a token is accepted. */
const TOLERANCE_MS = 60_000;
const NO_RUN: BackendRun = { abort: () => undefined, resume: () => undefined };

export function serveDemand(
  hub: Hub,
  demand: Demand,
  exchange: Exchange,
  call: BackendCall,
  reports: ReportEnv,
): BackendRun {
  const { headers } = exchange.request;
  const forwarded = hub.wantsHeaders ? headers : undefined;
  const wire = exchange.isWatched ? call : undefined;
  const report = new RequestReport(reports, exchange, call, demand.kind === "streamMessage");
  // A challenge needs the head of the answer.
  const primeAfterMs = call instanceof RelayedCall ? KEEP_ALIVE_MS : undefined;
  const context = { access: exchange.mcp.access, headers: forwarded, report, wire, primeAfterMs };
  switch (demand.kind) {
    case "initialize":
      return hub.initialize(demand.request, exchange, call, report);
    case "requests":
      for (const message of demand.notes) pass(demand.session, message, wire);
      return demand.session.request(demand.requests, call, context);
    case "notes":
      for (const message of demand.notes) pass(demand.session, message, wire);
      return empty(call, 202);
    case "listen":
      return demand.session.listen(call, demand.after, tokenLifeMs(exchange));
    case "delete":
      demand.session.end("the client ended it");
      return empty(call, 204);
    case "endedElsewhere":
      return empty(call, 204);
    case "openStream":
      return hub.openStream(exchange, call);
    case "streamMessage":
      if (demand.message.kind !== "request") pass(demand.session, demand.message, wire);
      else if (demand.message.method === "initialize")
        hub.initializeStream(demand.session, demand.message, headers, report, wire);
      else demand.session.requestOnStream(demand.message, context);
      return empty(call, 202);
    case "modern":
      return hub.serveModern(demand.request, exchange, call, report);
    case "stateless": {
      const own = ownResult(demand.request);
      if (own === undefined) return hub.serveStateless(demand.request, exchange, call, report);
      report.ended(demand.request, undefined, SUCCEEDED);
      sendJson(call, 200, resultText(demand.request.id, own));
      return NO_RUN;
    }
    case "dropped":
      return empty(call, 202);
  }
}

function pass(
  session: Session,
  message: Exclude<ClientMessage, { kind: "request" }>,
  wire: BackendCall | undefined,
): void {
  if (message.kind === "notification") session.notify(message, wire);
  else session.respond(message, wire);
}

function empty(call: BackendCall, status: number): BackendRun {
  call.head(status, new HeaderList());
  call.end();
  return NO_RUN;
}

/** How long the token of a request is accepted from now on; undefined where there is none. */
function tokenLifeMs({ facts, startedAt }: Exchange): number | undefined {
  const exp = facts.jwt?.exp;
  return typeof exp === "number" ? exp * 1000 + TOLERANCE_MS - startedAt : undefined;
}
