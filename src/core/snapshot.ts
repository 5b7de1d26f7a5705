/**
 * `requestState`: the exchange as the trace shows it at one moment, with sensitive headers, keys and credential
 * parameters redacted. Built only for a traced request, or when somebody looks at a recent one.
 */
import type { Clock } from "../lib/process/clock.ts";
import type { JsonObject } from "../trace/events.ts";
import { REDACTED, type Redaction } from "../trace/redact.ts";
import type { Exchange, Facts, GatewayRequest, Source } from "./exchange.ts";

/** What a snapshot of the request is made of; an Exchange has it, and so has a recent request. */
export interface SnapshotSource {
  readonly request: Pick<GatewayRequest, "method" | "scheme" | "host" | "path" | "query" | "version" | "headers">;
  readonly source: Source;
  readonly facts: Facts;
  readonly startedAt: number;
  readonly credentialQuery: readonly string[] | undefined;
}

export function requestState(exchange: SnapshotSource, redaction: Redaction): JsonObject {
  const { request, facts, source } = exchange;
  const query = redaction.query(request.query, exchange.credentialQuery);
  const pathAndQuery = query === "" ? request.path : `${request.path}?${query}`;
  return {
    request: {
      method: request.method,
      uri: `${request.scheme}://${request.host}${pathAndQuery}`,
      path: request.path,
      pathAndQuery,
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
      ...(upstreamHeadMs === undefined
        ? {}
        : {
            upstreamDuration: seconds(upstreamHeadMs - upstreamFrom),
            responseProcessingDuration: seconds(clock.monotonicMs() - upstreamHeadMs),
          }),
    },
    env: {},
    ...factsState(exchange.facts),
  };
}

/** Copies, because facts go on changing while an event waits for its reader. */
function factsState({ jwt, apiKey, basicAuth, mcp, llm, backend }: Facts): JsonObject {
  return {
    ...(jwt ? { jwt: withoutSecret(jwt, "rawToken") } : {}),
    ...(apiKey ? { apiKey: withoutSecret(apiKey, "key") } : {}),
    ...(basicAuth ? { basicAuth: { username: basicAuth.username } } : {}),
    ...(mcp ? { mcp: { ...mcp } } : {}),
    ...(llm ? { llm: { ...llm } } : {}),
    ...(backend ? { backend } : {}),
  };
}

function withoutSecret(facts: JsonObject, field: string): JsonObject {
  return field in facts ? { ...facts, [field]: REDACTED } : facts;
}

function seconds(ms: number): string {
  return `${(Math.max(0, ms) / 1000).toFixed(6)}s`;
}
