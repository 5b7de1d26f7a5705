/**
 * Token limits on plain HTTP backends: where an entered scope has such a limit, a JSON request with a `model` is
 * treated as an LLM call, and the usage is read from the answer as it passes (decisions.md, LLM). What looks like one
 * and cannot be read is refused. Elsewhere nothing is read.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayResponse } from "../../core/exchange.ts";
import type { CompiledScope } from "../../core/topology.ts";
import { foreignCharset } from "../../lib/http/charset.ts";
import { detectLlmRequest, isUnclear } from "../../llm/dialects/detect.ts";
import { createUsageTap, settleUsage } from "../../llm/usage/usage-tap.ts";

/** As on LLM routes: images travel inside the JSON. */
export const MAX_LLM_BODY_BYTES = 32 * 1024 * 1024;

export function wantsLlmSight(exchange: Exchange, scopes: readonly CompiledScope[]): boolean {
  if (exchange.facts.llm !== undefined || exchange.request.body.kind === "none") return false;
  // Whatever the content type says: many model servers read JSON without looking at it.
  return scopes.some((scope) => scope.llmRequest.length > 0);
}

/** Call when the body is whole: recognises the request and arranges for its answer to be read. */
export function lookForLlm(exchange: Exchange): void {
  const { request } = exchange;
  if (request.body.kind !== "bytes") return;
  const coding = request.headers.get("content-encoding")?.toLowerCase() ?? "identity";
  if (coding !== "identity") throw unreadable("unsupported_media_type", "the body is encoded");
  const charset = foreignCharset(request.headers);
  if (charset !== undefined) throw unreadable("unsupported_media_type", `the body's charset is ${charset}`);
  const facts = detectLlmRequest(request.path, request.body.bytes);
  if (!facts) {
    // What we cannot read the server behind us may: uncounted, it would be a way around the budget.
    if (isUnclear(request.path, request.body.bytes))
      throw unreadable("bad_request", "the body is not one plain JSON object");
    return;
  }
  exchange.facts.llm = facts;
  // An encoded answer could be read only at its end.
  request.headers.set("accept-encoding", "identity");
  exchange.observeResponse = (response: GatewayResponse) => {
    const { headers } = response;
    const tap = createUsageTap(headers.get("content-type"), headers.get("content-encoding"), (report) =>
      settleUsage(facts, report),
    );
    response.observers = [
      ...(response.observers ?? []),
      { data: (chunk) => tap.data(chunk), end: (complete) => (complete ? tap.end() : tap.abort()) },
    ];
  };
}

function unreadable(code: "bad_request" | "unsupported_media_type", what: string): GatewayError {
  return new GatewayError(code, { message: `${what}, and the route limits tokens` });
}
