/**
 * Keeps a finished request in memory, as references to fields of the exchange, without bodies. Views are built on
 * demand.
 */
import type { Exchange, ShadowDenial } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import { requestSubject } from "../../core/principal.ts";
import type { LlmAttributes, RequestAttributes } from "../../core/request-attributes.ts";
import { requestState, type SnapshotSource } from "../../core/snapshot.ts";
import { HeaderList } from "../../http/headers.ts";
import type { JsonObject } from "../../observe/trace/events.ts";
import { type Redaction, redactUrl, shortSessionId } from "../../observe/trace/redact.ts";
import type { RequestRecord } from "../../observe/trace/request-record.ts";

export interface FinishedRequest {
  readonly seq: number;
  readonly exchange: Pick<
    Exchange,
    "id" | "listener" | "source" | "route" | "attributes" | "steps" | "failure" | "startedAt" | "originalHost"
  > & { readonly shadowDenials: readonly ShadowDenial[] | undefined };
  /** `dropHeaders` replaces the headers of older successful requests. */
  readonly request: SnapshotSource["request"] & { headers: HeaderList };
  responseHeaders: HeaderList | undefined;
  readonly credentialQuery: readonly string[] | undefined;
  readonly secrets: readonly string[] | undefined;
  readonly outcome: Outcome;
  readonly answeredBy: "upstream" | "gateway" | null;
  readonly upstreamMs: number | null;
  readonly durationMs: number;
}

export function finishedRequest(
  seq: number,
  exchange: Exchange,
  outcome: Outcome,
  durationMs: number,
): FinishedRequest {
  const { arrived, originalPath, originalQuery } = exchange;
  const { id, listener, source, route, attributes, steps, failure, startedAt, originalHost } = exchange;
  const { startedMs: upstreamStartedMs, headMs: upstreamHeadMs } = exchange.upstream;
  return {
    seq,
    exchange: {
      id,
      listener,
      source,
      route,
      attributes: withoutBody(attributes),
      steps,
      failure,
      startedAt,
      originalHost,
      shadowDenials: exchange.shadow.denials,
    },
    // Copying the fields avoids a reference to the whole body.
    request: {
      method: arrived.method,
      scheme: arrived.scheme,
      host: originalHost,
      path: originalPath,
      rawPath: arrived.rawPath,
      query: originalQuery,
      version: arrived.version,
      headers: arrived.headers,
    },
    responseHeaders: outcome.status === undefined ? undefined : exchange.response?.headers,
    credentialQuery: exchange.credentials.query,
    secrets: exchange.credentials.secrets,
    outcome,
    answeredBy: outcome.status === undefined ? null : (exchange.response?.source ?? null),
    upstreamMs:
      upstreamStartedMs === undefined || upstreamHeadMs === undefined ? null : upstreamHeadMs - upstreamStartedMs,
    durationMs,
  };
}

/** Copies the LLM attributes, because the original object may reference the whole body. */
function withoutBody(attributes: RequestAttributes): RequestAttributes {
  return attributes.llm === undefined ? attributes : { ...attributes, llm: withoutText(attributes.llm) };
}

/** The prompt and the completion are for the access log and spans. They can be large and are not kept. */
export function withoutText({ prompt: _prompt, completion: _completion, ...llm }: LlmAttributes): LlmAttributes {
  return llm;
}

export function hasFailed(exchange: Pick<Exchange, "failure">, outcome: Outcome): boolean {
  return exchange.failure !== undefined || outcome.end !== "complete" || (outcome.status ?? 0) >= 400;
}

/** Returns the attributes under the names that CEL expressions use. `headers` is absent if they are no longer kept. */
export function finishedState(one: FinishedRequest, redaction: Redaction): JsonObject {
  const { exchange, request, responseHeaders, credentialQuery, secrets, outcome } = one;
  const state = requestState(
    {
      request,
      source: exchange.source,
      attributes: exchange.attributes,
      startedAt: exchange.startedAt,
      credentials: { query: credentialQuery, secrets },
    },
    redaction,
  );
  const { headers: requestHeaders, ...requestFields } = state.request as JsonObject;
  // A response may echo credentials of the request.
  const hidden = [...redaction.secrets(request.headers.pairs), ...(secrets ?? [])];
  return {
    ...state,
    request: { ...requestFields, ...(request.headers === NO_HEADERS ? {} : { headers: requestHeaders }) },
    ...(outcome.status === undefined
      ? {}
      : {
          response: {
            code: outcome.status,
            ...(responseHeaders ? { headers: redaction.headers(responseHeaders.pairs, hidden) } : {}),
          },
        }),
    proxy: {
      listener: { name: exchange.listener },
      ...(exchange.route === undefined ? {} : { route: { name: exchange.route } }),
    },
  };
}

export function toRequestRecord(one: FinishedRequest): RequestRecord {
  const { exchange, request, outcome } = one;
  const { attributes, failure, shadowDenials } = exchange;
  return {
    seq: one.seq,
    id: exchange.id,
    time: new Date(exchange.startedAt).toISOString(),
    durationMs: round(one.durationMs),
    listener: exchange.listener,
    route: exchange.route ?? null,
    backend: attributes.backend?.name ?? null,
    method: request.method,
    host: request.host,
    path: request.path,
    source: exchange.source,
    status: outcome.status ?? null,
    answeredBy: one.answeredBy,
    end: outcome.end,
    responseBytes: outcome.responseBytes,
    upstreamMs: one.upstreamMs === null ? null : round(one.upstreamMs),
    subject: requestSubject(attributes),
    ...(attributes.mcp ? { mcp: mcpFields(attributes.mcp) } : {}),
    ...(attributes.llm ? { llm: llmFields(attributes.llm) } : {}),
    steps: exchange.steps,
    ...(failure
      ? {
          failure: {
            code: failure.code,
            source: failure.source,
            message: failure.message,
            ...(failure.detail === undefined ? {} : { detail: failure.detail }),
          },
        }
      : {}),
    ...(shadowDenials ? { shadow: shadowDenials.map(({ policy, detail }) => ({ policy, reason: detail })) } : {}),
  };
}

function mcpFields(mcp: NonNullable<Exchange["attributes"]["mcp"]>): NonNullable<RequestRecord["mcp"]> {
  const named = mcp.tool ?? mcp.prompt;
  return defined({
    method: mcp.methodName,
    target: named?.target ?? mcp.resource?.target ?? mcp.target,
    name: named?.name ?? (mcp.resource && redactUrl(mcp.resource.uri)),
    session: mcp.sessionId && shortSessionId(mcp.sessionId),
    outcome: mcp.outcome,
  });
}

function llmFields(llm: NonNullable<Exchange["attributes"]["llm"]>): NonNullable<RequestRecord["llm"]> {
  return defined({
    provider: llm.provider,
    model: llm.responseModel ?? llm.requestModel,
    inputTokens: llm.inputTokens,
    outputTokens: llm.outputTokens,
    cachedTokens: llm.cachedInputTokens,
    cost: llm.cost,
    dropped: llm.dropped,
  });
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

function defined<T extends Record<string, unknown>>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<T>;
}

function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

const NO_HEADERS = new HeaderList();

/** Headers are most of a record's size. Failed requests keep them. */
export function dropHeaders(one: FinishedRequest): void {
  if (hasFailed(one.exchange, one.outcome)) return;
  one.request.headers = NO_HEADERS;
  one.responseHeaders = undefined;
}
