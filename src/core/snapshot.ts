/**
 * `requestState`: the exchange as the trace shows it at one moment, with sensitive headers redacted. Built only
 * for a traced request.
 */
import type { Clock } from "../lib/clock.ts";
import type { JsonObject } from "../trace/events.ts";
import { REDACTED, type Redaction } from "../trace/redact.ts";
import { type Exchange, pathAndQuery } from "./exchange.ts";

export function requestState(exchange: Exchange, redaction: Redaction): JsonObject {
  const { request, facts, source } = exchange;
  const uri = shownQuery(exchange);
  return {
    request: {
      method: request.method,
      uri: `${request.scheme}://${request.host}${uri}`,
      path: request.path,
      pathAndQuery: uri,
      host: request.host,
      scheme: request.scheme,
      version: `HTTP/${request.version}`,
      headers: redaction.headers(request.headers.pairs),
      startTime: new Date(exchange.startedAt).toISOString(),
    },
    env: {},
    source: { address: source.address, port: source.port },
    ...factsState(facts),
  };
}

export function responseState(exchange: Exchange, redaction: Redaction, clock: Clock): JsonObject {
  const { response, upstreamStartedMs, upstreamHeadMs, startedMs } = exchange;
  const upstreamFrom = upstreamStartedMs ?? clock.monotonicMs();
  return {
    response: response ? { code: response.status, headers: redaction.headers(response.headers.pairs) } : {},
    proxy: {
      listener: { name: exchange.listener },
      ...(exchange.route === undefined ? {} : { route: { name: exchange.route } }),
      requestProcessingDuration: seconds(upstreamFrom - startedMs),
      ...(upstreamHeadMs === undefined ? {} : { upstreamDuration: seconds(upstreamHeadMs - upstreamFrom) }),
    },
    env: {},
    ...factsState(exchange.facts),
  };
}

function factsState(facts: Exchange["facts"]): JsonObject {
  return {
    ...(facts.jwt ? { jwt: facts.jwt } : {}),
    ...(facts.apiKey ? { apiKey: facts.apiKey } : {}),
    ...(facts.basicAuth ? { basicAuth: facts.basicAuth } : {}),
    ...(facts.mcp ? { mcp: facts.mcp } : {}),
    ...(facts.llm ? { llm: facts.llm } : {}),
    ...(facts.backend ? { backend: facts.backend } : {}),
  };
}

/** A credential in the query is as secret as one in a header. */
function shownQuery(exchange: Exchange): string {
  const hidden = exchange.credentialQuery;
  if (!hidden || hidden.length === 0) return pathAndQuery(exchange.request);
  const parts = exchange.request.query.split("&").map((part) => {
    const name = part.split("=", 1)[0] ?? "";
    return hidden.includes(decodeURIComponentSafely(name)) ? `${name}=${REDACTED}` : part;
  });
  return `${exchange.request.path}?${parts.join("&")}`;
}

function decodeURIComponentSafely(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function seconds(ms: number): string {
  return `${(Math.max(0, ms) / 1000).toFixed(6)}s`;
}
