/**
 * Keeps a finished request in memory, as its fields without bodies. Views are built on demand.
 */
import { Buffer } from "node:buffer";
import { describeAttempt } from "../core/attempts.ts";
import type { Exchange, ShadowDenial, Step } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { requestSubject } from "../core/principal.ts";
import type { LlmAttributes, RequestAttributes } from "../core/request-attributes.ts";
import { requestState, type SnapshotSource } from "../core/snapshot.ts";
import type { Source } from "../core/source.ts";
import { HeaderList } from "../http/headers.ts";
import {
  type JsonObject,
  type RecordedAttempt,
  type RequestRecord,
  type RequestResult,
  resultOf,
} from "./trace/record.ts";
import { type Redaction, redactUrl, shortSessionId } from "./trace/redact.ts";

const NO_HEADERS = new HeaderList();
const NO_STEPS: readonly Step[] = [];
const SHARED_STRINGS = 1_000;
/** Longer strings are copied, so that the table stays small whatever paths clients send. */
const MAX_SHARED_CHARS = 200;

type KeptAttributes = { [K in keyof Required<RequestAttributes>]: RequestAttributes[K] | undefined };

/**
 * The list of recent requests reuses these objects, because each collection of the young generation would copy new ones.
 */
export class FinishedRequest implements KeptAttributes {
  seq = 0;
  id = "";
  listener = "";
  route: string | undefined = undefined;
  source: Source | undefined = undefined;
  startedAt = Number.NaN;
  durationMs = Number.NaN;
  /** NaN if no backend responded. */
  upstreamMs = Number.NaN;
  method = "";
  scheme: SnapshotSource["request"]["scheme"] = "http";
  host = "";
  path = "";
  rawPath = "";
  query = "";
  version: SnapshotSource["request"]["version"] = "1.1";
  headers = NO_HEADERS;
  responseHeaders: HeaderList | undefined = undefined;
  credentialQuery: readonly string[] | undefined = undefined;
  secrets: readonly string[] | undefined = undefined;
  status: number | undefined = undefined;
  end: Outcome["end"] = "complete";
  responseBytes = 0;
  answeredBy: "upstream" | "gateway" | null = null;
  steps = NO_STEPS;
  attempts: readonly RecordedAttempt[] | undefined = undefined;
  failure: Exchange["failure"] = undefined;
  rules: Exchange["checkedRules"] = undefined;
  shadowDenials: readonly ShadowDenial[] | undefined = undefined;
  jwt: RequestAttributes["jwt"] | undefined = undefined;
  apiKey: RequestAttributes["apiKey"] | undefined = undefined;
  basicAuth: RequestAttributes["basicAuth"] | undefined = undefined;
  extauthz: RequestAttributes["extauthz"] | undefined = undefined;
  mcpGuardrails: RequestAttributes["mcpGuardrails"] | undefined = undefined;
  llm: RequestAttributes["llm"] | undefined = undefined;
  mcp: RequestAttributes["mcp"] | undefined = undefined;
  a2a: RequestAttributes["a2a"] | undefined = undefined;
  backend: RequestAttributes["backend"] | undefined = undefined;

  /** Replaces all fields. `share` returns the string to keep instead of an equal one. */
  set(
    seq: number,
    exchange: Exchange,
    outcome: Outcome,
    durationMs: number,
    {
      share,
      redaction,
    }: { readonly share: (text: string) => string; readonly redaction: Pick<Redaction, "host" | "scrub"> },
  ): void {
    const { arrived, attributes, upstream, credentials, response } = exchange;
    this.seq = seq;
    this.id = exchange.id;
    this.listener = exchange.listener;
    this.route = exchange.route;
    this.source = exchange.source;
    this.startedAt = exchange.startedAt;
    this.durationMs = durationMs;
    this.upstreamMs =
      upstream.startedMs === undefined || upstream.headMs === undefined
        ? Number.NaN
        : upstream.headMs - upstream.startedMs;
    this.method = share(arrived.method);
    this.scheme = arrived.scheme;
    this.host = share(redaction.host(exchange.originalHost));
    this.path = share(exchange.originalPath);
    this.rawPath = share(arrived.rawPath);
    this.query = share(exchange.originalQuery);
    this.version = arrived.version;
    this.headers = arrived.headers;
    this.responseHeaders = outcome.status === undefined ? undefined : response?.headers;
    this.credentialQuery = credentials.query;
    this.secrets = credentials.secrets;
    this.status = outcome.status;
    this.end = outcome.end;
    this.responseBytes = outcome.responseBytes;
    this.answeredBy = outcome.status === undefined ? null : (response?.source ?? null);
    this.steps = exchange.steps.length === 0 ? NO_STEPS : exchange.steps;
    this.attempts = recordedAttempts(exchange, redaction);
    this.failure = exchange.failure;
    this.rules = exchange.checkedRules?.map((rule) =>
      rule.values === undefined
        ? rule
        : { ...rule, values: redaction.scrub(rule.values, arrived.headers.pairs, credentials.secrets) },
    );
    this.shadowDenials = exchange.shadow.denials;
    this.jwt = attributes.jwt;
    this.apiKey = attributes.apiKey;
    this.basicAuth = attributes.basicAuth;
    this.extauthz = attributes.extauthz;
    this.mcpGuardrails = attributes.mcpGuardrails;
    // The original object may reference the whole body.
    this.llm = attributes.llm && withoutText(attributes.llm);
    this.mcp = attributes.mcp;
    this.a2a = attributes.a2a;
    this.backend = attributes.backend;
  }

  get attributes(): RequestAttributes {
    const { jwt, apiKey, basicAuth, extauthz, mcpGuardrails, llm, mcp, a2a, backend } = this;
    const kept: KeptAttributes = { jwt, apiKey, basicAuth, extauthz, mcpGuardrails, llm, mcp, a2a, backend };
    return defined(kept);
  }

  get result(): RequestResult {
    return resultOf({ status: this.status ?? null, end: this.end, failure: this.failure, mcp: this.mcp });
  }

  /** Headers are most of a request's size. Requests that did not succeed keep them. */
  dropHeaders(): void {
    if (this.result !== "ok") return;
    this.headers = NO_HEADERS;
    this.responseHeaders = undefined;
    this.secrets = undefined;
  }
}

/**
 * Returns a function that returns the same string for equal strings. The parser slices its strings from the head of the
 * request, so that each of them would keep the head in memory.
 */
export function createStringSharing(): (text: string) => string {
  const known = new Map<string, string>();
  return (text) => {
    if (text.length > MAX_SHARED_CHARS) return Buffer.from(text).toString();
    const shared = known.get(text);
    if (shared !== undefined) return shared;
    if (known.size >= SHARED_STRINGS) known.clear();
    const copy = Buffer.from(text).toString();
    known.set(copy, copy);
    return copy;
  };
}

/** The prompt and the completion are for the access log and spans. They can be large and are not kept. */
export function withoutText({ prompt: _prompt, completion: _completion, ...llm }: LlmAttributes): LlmAttributes {
  return llm;
}

export function resultOfRequest(
  { failure, attributes: { mcp } }: Pick<Exchange, "failure" | "attributes">,
  { status, end }: Outcome,
): RequestResult {
  return resultOf({ status: status ?? null, end, failure, mcp });
}

/** Returns the attributes under the names that CEL expressions use. `headers` is absent if they are no longer kept. */
export function finishedState(one: FinishedRequest, redaction: Redaction): JsonObject {
  const { source, attributes, startedAt, headers, responseHeaders, secrets, status } = one;
  const state = requestState(
    {
      request: one,
      source: source as Source,
      attributes,
      startedAt,
      credentials: { query: one.credentialQuery, secrets },
    },
    redaction,
  );
  const { headers: requestHeaders, ...requestFields } = state.request as JsonObject;
  // A response may echo credentials of the request.
  const hidden = [...redaction.secrets(headers.pairs), ...(secrets ?? [])];
  return {
    ...state,
    request: { ...requestFields, ...(headers === NO_HEADERS ? {} : { headers: requestHeaders }) },
    ...(status === undefined
      ? {}
      : {
          response: {
            code: status,
            ...(responseHeaders ? { headers: redaction.headers(responseHeaders.pairs, hidden) } : {}),
          },
        }),
    proxy: {
      listener: { name: one.listener },
      ...(one.route === undefined ? {} : { route: { name: one.route } }),
    },
  };
}

export function toRequestRecord(one: FinishedRequest): RequestRecord {
  const { failure, shadowDenials, mcp, llm } = one;
  return {
    seq: one.seq,
    id: one.id,
    time: new Date(one.startedAt).toISOString(),
    durationMs: round(one.durationMs),
    listener: one.listener,
    route: one.route ?? null,
    backend: one.backend?.name ?? null,
    method: one.method,
    host: one.host,
    path: one.path,
    source: one.source as Source,
    status: one.status ?? null,
    answeredBy: one.answeredBy,
    end: one.end,
    responseBytes: one.responseBytes,
    upstreamMs: Number.isNaN(one.upstreamMs) ? null : round(one.upstreamMs),
    subject: requestSubject(one.attributes),
    ...(mcp ? { mcp: mcpFields(mcp) } : {}),
    ...(llm ? { llm: llmFields(llm) } : {}),
    steps: one.steps,
    ...(one.attempts === undefined ? {} : { attempts: one.attempts }),
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
    ...(one.rules ? { rules: one.rules } : {}),
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
    ...nonzero({
      inputTokens: llm.inputTokens,
      outputTokens: llm.outputTokens,
      cachedTokens: llm.cachedInputTokens,
      cost: llm.cost,
    }),
    dropped: llm.dropped,
  });
}

/** The history stores absent amounts as zero, so records omit both. */
export function nonzero<T extends Record<string, number | undefined>>(amounts: T): Defined<T> {
  return Object.fromEntries(Object.entries(amounts).filter(([, amount]) => amount)) as Defined<T>;
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

function defined<T extends Record<string, unknown>>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<T>;
}

function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** Returns undefined unless an attempt was repeated. An MCP backend may call several servers once each. */
export function recordedAttempts(
  { attempts, arrived, credentials }: Exchange,
  redaction: Pick<Redaction, "scrub">,
): readonly RecordedAttempt[] | undefined {
  if (attempts.list.length < 2 || attempts.list.every(({ retryReason }) => retryReason === undefined)) return undefined;
  const shown = (text: string): string => redaction.scrub(text, arrived.headers.pairs, credentials.secrets);
  return attempts.list.map((attempt) => {
    const { error, retryReason, ...described } = describeAttempt(attempt);
    return {
      ...described,
      ...(error === undefined ? {} : { error: shown(error) }),
      ...(retryReason === undefined ? {} : { retryReason: shown(retryReason) }),
    };
  });
}

/** Formats attempts as `openai api.openai.com:443: 503 after 12.5 ms; groq api.groq.com:443: 200 after 80 ms`. */
export function attemptsText(attempts: readonly RecordedAttempt[]): string {
  return attempts
    .map(({ provider, target, status, error, durationMs }) => {
      const server = provider === undefined ? target : `${provider} ${target}`;
      const after = durationMs === null ? "" : ` after ${durationMs} ms`;
      return `${server}: ${error ?? status ?? "no response"}${after}`;
    })
    .join("; ");
}
