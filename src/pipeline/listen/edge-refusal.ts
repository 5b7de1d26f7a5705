/**
 * A request that is refused before any policy sees it: a head that is not acceptable or cannot be read, an expectation,
 * overload. Log, metrics, recent requests and the trace hear of it all the same, with what could be read of it.
 */

import { isHeaderName } from "../../base/header-names.ts";
import type { GatewayError } from "../../core/errors.ts";
import { type Exchange, type GatewayRequest, NO_BODY } from "../../core/exchange.ts";
import { errorReply, type Reply } from "../../core/reply.ts";
import { requestState, responseState } from "../../core/snapshot.ts";
import { HeaderList, isHeaderValue } from "../../http/headers.ts";
import { redactUrl } from "../../observe/trace/redact.ts";
import type { Trace } from "../../observe/trace/trace.ts";
import type { PipelineEnv } from "../phases/pipeline-env.ts";
import { BodyCapture } from "../records/body-capture.ts";

/** Of a host, a path or a query that nobody has checked. */
const MAX_SHOWN_CHARS = 256;
/** As many as an acceptable request may have. */
const MAX_SHOWN_LINES = 100;
const REQUEST_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) (\S*)(?: HTTP\/(\d\.\d))?$/;
/** Methods are a label of metrics: what anybody makes up is left out. */
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]);

/** What was read of it. */
export interface RefusedHead {
  readonly method: string;
  readonly target: string;
  readonly version: string;
  /** name, value, … as written. */
  readonly rawHeaders: readonly string[];
}

export interface Refusal {
  /** Complete: with its length and `x-request-id`. */
  readonly reply: Reply;
  settle(isComplete: boolean): void;
}

/** The request of the exchange, shortened. Its headers are redacted where they are shown. */
export function refusedRequest(head: RefusedHead, scheme: "http" | "https"): GatewayRequest {
  const headers = HeaderList.fromRaw(head.rawHeaders.slice(0, MAX_SHOWN_LINES * 2));
  // A fragment or a user name may hold a credential, and neither has a place in a request target.
  const target = redactUrl(head.target.split("#", 1)[0] ?? "");
  const question = target.indexOf("?");
  const path = (question < 0 ? target : target.slice(0, question)).slice(0, MAX_SHOWN_CHARS);
  return {
    method: head.method,
    scheme,
    host: (headers.get("host") ?? "").slice(0, MAX_SHOWN_CHARS),
    // A path that was refused may have no canonical form.
    path,
    rawPath: path,
    query: question < 0 ? "" : target.slice(question + 1, question + 1 + MAX_SHOWN_CHARS),
    version: head.version === "1.0" || head.version === "2" ? head.version : "1.1",
    headers,
    body: NO_BODY,
  };
}

/** A head that the parser gave up on, line by line as far as it makes sense. */
export function brokenHead(bytes: Buffer | undefined): RefusedHead {
  const [first = "", ...lines] = (bytes ?? Buffer.alloc(0)).toString("latin1").split(/\r?\n/);
  const [, method = "", target = "", version = ""] = REQUEST_LINE.exec(first) ?? [];
  const rawHeaders: string[] = [];
  for (const line of method === "" ? [] : lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon));
    const value = line.slice(colon + 1).trim();
    if (!isHeaderName(name) || !isHeaderValue(value)) break;
    rawHeaders.push(name, value);
  }
  return { method: METHODS.has(method) ? method : "", target, version, rawHeaders };
}

export function beginRefusal(env: PipelineEnv, exchange: Exchange, error: GatewayError): Refusal {
  const { code, source, message, detail } = error;
  const reply = errorReply(error);
  const responseBytes = reply.body?.length ?? 0;
  reply.headers.set("content-length", String(responseBytes));
  reply.headers.set("x-request-id", exchange.id);
  exchange.failure = { code, source, message, detail };
  exchange.response = { status: reply.status, headers: reply.headers, source: "gateway" };
  exchange.trace = env.trace(exchange);
  if (exchange.trace !== undefined) tell(env, exchange, exchange.trace, reply);
  return {
    reply,
    settle: (isComplete) =>
      env.settled(exchange, { status: reply.status, end: isComplete ? "complete" : "aborted", responseBytes }),
  };
}

function tell({ redaction, clock }: PipelineEnv, exchange: Exchange, trace: Trace, reply: Reply): void {
  const { failure } = exchange;
  trace.point({ type: "requestStarted" });
  trace.point({ type: "requestSnapshot", stage: "initial request", requestState: requestState(exchange, redaction) });
  const reason = failure?.detail ?? failure?.message ?? "";
  const details = redaction.scrub(reason, exchange.request.headers.pairs);
  trace.point({ type: "policy", phase: "gateway", kind: "edge", result: "refused", details }, "warn");
  const state = responseState(exchange, redaction, clock);
  trace.point({ type: "responseSnapshot", stage: "final response", requestState: state });
  const capture = new BodyCapture();
  if (reply.body) capture.add(reply.body);
  capture.emit(trace, "response", reply.headers.get("content-type"));
}
