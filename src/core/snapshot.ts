/**
 * Builds snapshots of an exchange for traces and recent requests, with sensitive headers, keys, and credential
 * parameters redacted.
 */
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { writtenHeaders } from "../http/h1/connection.ts";
import type { HeaderList } from "../http/headers.ts";
import { pathAndQuery } from "../http/request-path.ts";
import { readJson } from "../json/read-json.ts";
import type { JsonObject, TraceMessage } from "../record/trace/record.ts";
import { REDACTED, type Redaction, redactJson, shortSessionId } from "../record/trace/redact.ts";
import type { Trace } from "../record/trace/trace.ts";
import type { Exchange, GatewayRequest } from "./exchange.ts";
import type { RequestAttributes } from "./request-attributes.ts";
import { clientAddress, type Source } from "./source.ts";
import type { Sent } from "./wire.ts";

const REDACTED_VALUE = peerInput("gateway/redacted-value");

export interface SnapshotSource {
  readonly request: Pick<
    GatewayRequest,
    "method" | "scheme" | "host" | "path" | "rawPath" | "query" | "version" | "headers"
  >;
  readonly source: Source;
  readonly attributes: RequestAttributes;
  readonly startedAt: number;
  readonly credentials: {
    readonly query: readonly string[] | undefined;
    /** A policy removed the headers with these values, but other headers may contain copies. */
    readonly secrets: readonly string[] | undefined;
  };
}

/** `path` replaces the path of the request. */
export function requestState(
  exchange: SnapshotSource,
  redaction: Redaction,
  path: string = exchange.request.path,
): JsonObject {
  const { request, attributes, source } = exchange;
  const query = redaction.query(request.query, exchange.credentials.query);
  const shown = pathAndQuery({ path, query });
  const host = redaction.host(request.host);
  return {
    request: {
      method: request.method,
      uri: `${request.scheme}://${host}${shown}`,
      path,
      rawPath: request.rawPath,
      pathAndQuery: shown,
      host,
      scheme: request.scheme,
      version: `HTTP/${request.version}`,
      headers: redaction.headers(request.headers.pairs, exchange.credentials.secrets),
      startTime: new Date(exchange.startedAt).toISOString(),
    },
    env: {},
    source: sourceState(source),
    client: { address: clientAddress(source) },
    ...attributesState(attributes),
  };
}

function sourceState({ address, port, identity }: Source): JsonObject {
  return identity === undefined ? { address, port } : { address, port, identity };
}

export function sentState(exchange: SnapshotSource, target: string, sent: Sent, redaction: Redaction): JsonObject {
  const startTime = new Date(exchange.startedAt).toISOString();
  return {
    request:
      sent.over === "stdio"
        ? { uri: target, headers: {}, startTime }
        : { ...sentRequest(exchange, sent, redaction), startTime },
    env: {},
    source: sourceState(exchange.source),
    client: { address: clientAddress(exchange.source) },
    ...attributesState(exchange.attributes),
  };
}

function sentRequest(
  exchange: SnapshotSource,
  sent: Extract<Sent, { over: "http" }>,
  redaction: Redaction,
): JsonObject {
  const { request, scheme, hiddenHeaders = [], hiddenQuery = [] } = sent;
  const at = request.path.indexOf("?");
  const path = at < 0 ? request.path : request.path.slice(0, at);
  const hidden = [...hiddenQuery, ...(exchange.credentials.query ?? [])];
  const query = at < 0 ? "" : redaction.query(request.path.slice(at + 1), hidden);
  const shown = pathAndQuery({ path, query });
  const host = redaction.host(request.headers.get("host") ?? "");
  const pairs = writtenHeaders(request).map((text, i, all) =>
    i % 2 === 1 && hiddenHeaders.includes(all[i - 1] as string) ? REDACTED : text,
  );
  return {
    method: request.method,
    uri: `${scheme}://${host}${shown}`,
    path,
    pathAndQuery: shown,
    host,
    scheme,
    version: "HTTP/1.1",
    headers: redaction.headers(pairs, exchange.credentials.secrets),
  };
}

/** The monotonic times of the first byte sent to the server and of its response head or MCP result. */
export interface ServerTimes {
  readonly startedMs: number | undefined;
  readonly headMs: number | undefined;
}

export function responseState(exchange: Exchange, redaction: Redaction, clock: Clock): JsonObject {
  const { response, upstream } = exchange;
  return receivedState(exchange, response?.status, response?.headers, upstream, redaction, clock);
}

/** Replaces the durations in the state of a response whose trace event was delayed. */
export function withCurrentDurations(state: JsonObject, exchange: Exchange, clock: Clock): JsonObject {
  return { ...state, proxy: proxyState(exchange, exchange.upstream, clock) };
}

export function receivedState(
  exchange: Exchange,
  status: number | undefined,
  headers: HeaderList | undefined,
  times: ServerTimes,
  redaction: Redaction,
  clock: Clock,
): JsonObject {
  // A response may echo credentials of the request.
  const secrets = [...redaction.secrets(exchange.request.headers.pairs), ...(exchange.credentials.secrets ?? [])];
  return {
    response: headers ? { code: status, headers: redaction.headers(headers.pairs, secrets) } : {},
    proxy: proxyState(exchange, times, clock),
    env: {},
    ...attributesState(exchange.attributes),
  };
}

function proxyState({ listener, route, startedMs }: Exchange, times: ServerTimes, clock: Clock): JsonObject {
  const nowMs = clock.monotonicMs();
  const sentMs = times.startedMs ?? nowMs;
  const { headMs } = times;
  return {
    listener: { name: listener },
    ...(route === undefined ? {} : { route: { name: route } }),
    requestProcessingDuration: seconds(sentMs - startedMs),
    ...(headMs === undefined
      ? {}
      : { upstreamDuration: seconds(headMs - sentMs), responseProcessingDuration: seconds(nowMs - headMs) }),
  };
}

/** Copies the attributes, because they keep changing while an event is queued. */
function attributesState(attributes: RequestAttributes): JsonObject {
  const { jwt, apiKey, basicAuth, extauthz, mcpGuardrails, mcp, llm, a2a, backend } = attributes;
  return {
    ...(jwt ? { jwt: withoutSecret(jwt, "rawToken") } : {}),
    ...(apiKey ? { apiKey: withoutSecret(apiKey, "key") } : {}),
    ...(basicAuth ? { basicAuth: { username: basicAuth.username } } : {}),
    ...(extauthz ? { extauthz: withoutSecrets(extauthz) } : {}),
    ...(mcpGuardrails ? { mcpGuardrails: withoutSecrets(mcpGuardrails) } : {}),
    ...(mcp ? { mcp: withShortSession(mcp) } : {}),
    ...(llm ? { llm: { ...llm } } : {}),
    ...(a2a ? { a2a: { ...a2a } } : {}),
    ...(backend ? { backend } : {}),
  };
}

function withoutSecrets(values: object): JsonObject {
  return readJson(REDACTED_VALUE, redactJson(JSON.stringify(values))) as JsonObject;
}

function withoutSecret(attributes: JsonObject, field: string): JsonObject {
  return field in attributes ? { ...attributes, [field]: REDACTED } : attributes;
}

/** Redacts the details of policy events, which can repeat the request's credentials. */
export function redactedTrace(trace: Trace, exchange: Exchange, redaction: Redaction): Trace {
  const text = (value: string): string =>
    redaction.scrub(value, exchange.arrived.headers.pairs, exchange.credentials.secrets);
  const shown = (message: TraceMessage): TraceMessage => {
    if (message.type !== "policyEvent") return message;
    const { sessionId } = message.details;
    const details = typeof sessionId === "string" ? { sessionId: shortSessionId(sessionId) } : {};
    return { ...message, details: mapStrings({ ...message.details, ...details }, text) as JsonObject };
  };
  return {
    point: (message, severity) => trace.point(shown(message), severity),
    span: (startedMs, message, severity) => trace.span(startedMs, shown(message), severity),
    finish: trace.finish,
  };
}

function mapStrings(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((one) => mapStrings(one, change));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mapStrings(one, change)]));
}

/** On a route without authentication, the full id could give access to the session. */
function withShortSession(mcp: NonNullable<RequestAttributes["mcp"]>): JsonObject {
  const { sessionId } = mcp;
  return sessionId === undefined ? { ...mcp } : { ...mcp, sessionId: shortSessionId(sessionId) };
}

function seconds(ms: number): string {
  return `${(Math.max(0, ms) / 1000).toFixed(6)}s`;
}
