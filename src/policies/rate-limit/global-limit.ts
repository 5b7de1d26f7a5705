/**
 * `rateLimit.global`: enforces limits that an external service counts. If the service does not respond, `failureMode`
 * decides whether the request fails or passes.
 */

import { isHeaderName } from "../../base/header-names.ts";
import type { Expression } from "../../cel/expression.ts";
import { keyOf } from "../../cel/limit-key.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, type LimitReading, StateKey } from "../../core/exchange.ts";
import type { CompileEnv } from "../../core/policy.ts";
import { canServiceChange } from "../../http/header-rules.ts";
import { isHeaderValue } from "../../http/headers.ts";
import type { Counter } from "../../record/log/metrics.ts";
import {
  addReading,
  LIMIT_HEADER,
  REMAINING_HEADER,
  RESET_HEADER,
  rateLimitedError,
  VENDOR_HEADER,
} from "./limit-headers.ts";
import {
  CODE_OK,
  CODE_OVER_LIMIT,
  CODE_UNKNOWN,
  openRlsClient,
  type RlsClient,
  type RlsDescriptor,
  type RlsHeader,
  type RlsRequest,
  type RlsResponse,
  type RlsStatus,
  UNIT_SECONDS,
} from "./rls-client.ts";
import type { DescriptorConfig, GlobalLimitConfig } from "./schema.ts";

/**
 * Empty values and values that fail to evaluate are sent as this string, so they share one limit instead of being
 * exempt.
 */
const NO_VALUE = "(none)";
/** The service does not name the limit that applied. */
const SERVICE_LIMIT = "rate limit service";
/** No request waits for a settlement, so it may take longer than an admission. */
const SETTLE_TIMEOUT_MS = 1_000;
/** Limits the log lines while the service is unavailable. */
const LOG_INTERVAL_MS = 10_000;

export interface GlobalLimit {
  readonly counts: { readonly requests: boolean; readonly tokens: boolean };
  /** True if a request descriptor reads the body, so the service must be called after the body is parsed. */
  readonly needsBody: boolean;
  readonly readsModel: boolean;
  readonly isShadow: boolean;
  /**
   * Rejects with `rate_limited` or `rate_limit_unavailable`. In shadow mode it resolves immediately and records the
   * denial later.
   */
  admitRequest(exchange: Exchange): Promise<void>;
  admitTokens(exchange: Exchange, estimate: number): Promise<void>;
  settleTokens(exchange: Exchange, used: number): void;
  respond(exchange: Exchange): void;
}

interface GlobalLimitState {
  rejectionCount: number;
  unregister(): void;
}

interface CompiledDescriptor {
  readonly entries: readonly { readonly key: string; readonly value: Expression }[];
}

export function compileGlobalLimit(config: GlobalLimitConfig, env: CompileEnv): GlobalLimit {
  const isShadow = config.mode === "shadow";
  const requests = compileDescriptors(config, "requests", env);
  const tokens = compileDescriptors(config, "tokens", env);
  const client = env.acquire(
    `rateLimit service ${config.host}`,
    { egress: env.egress },
    () => openRlsClient(config.host, env.clock, env.tasks, env.egress),
    (closing: RlsClient) => closing.close(),
  );
  const state = env.acquire(
    `rateLimit ${env.scopeName} global`,
    config,
    () => openView(config, env),
    (closing) => closing.unregister(),
  );
  const rejections = env.metrics
    .counter("gateway_rate_limit_refused_total", "Requests refused by a limit.", ["owner", "type"])
    .labels(env.scopeName, "global");
  const failures = env.metrics
    .counter("gateway_rate_limit_service_failures_total", "Calls to the rate limit service without a usable answer.", [
      "host",
    ])
    .labels(config.host);
  const reportFailure = failureReport(config, env, failures);
  const estimated = new StateKey<{ descriptors: readonly RlsDescriptor[]; estimate: number }>();
  const responseHeaders = new StateKey<Record<string, string>>();

  function admit(exchange: Exchange, descriptors: readonly RlsDescriptor[], hitsAddend: number): Promise<void> {
    if (!isShadow) return callService(exchange, descriptors, hitsAddend);
    exchange.shadow.isPending = true;
    callService(exchange, descriptors, hitsAddend).catch((error: GatewayError) =>
      exchange.deniedInShadow("rateLimit", error.detail ?? error.message, { rule: `global, domain ${config.domain}` }),
    );
    return Promise.resolve();
  }

  async function callService(
    exchange: Exchange,
    descriptors: readonly RlsDescriptor[],
    hitsAddend: number,
  ): Promise<void> {
    const request: RlsRequest = { domain: config.domain, descriptors, hitsAddend };
    let response: RlsResponse;
    try {
      response = await client.call(request, config.timeout);
      if (![CODE_OK, CODE_UNKNOWN, CODE_OVER_LIMIT].includes(response.overallCode))
        throw new Error(`the unknown code ${response.overallCode}`);
    } catch (error) {
      reportFailure(error as Error);
      if (config.failureMode === "open") return;
      throw new GatewayError("rate_limit_unavailable", {
        detail: `${config.host}: ${(error as Error).message}`,
        cause: error,
      });
    }
    const result = parseServiceResponse(response);
    if (isShadow) {
      if (response.overallCode === CODE_OVER_LIMIT)
        throw new GatewayError("rate_limited", { detail: rejectionDetail(config) });
      return;
    }
    if (response.overallCode === CODE_OVER_LIMIT) {
      state.rejectionCount += 1;
      rejections.add();
      throw toGatewayError(exchange, config, result);
    }
    if (result.reading) addReading(exchange, result.reading);
    for (const [name, value] of Object.entries(result.requestHeaders)) exchange.request.headers.set(name, value);
    exchange.setState(responseHeaders, {
      ...exchange.state(responseHeaders),
      ...withoutVendorHeader(result.responseHeaders),
    });
  }

  return {
    isShadow,
    counts: { requests: requests.length > 0, tokens: tokens.length > 0 },
    needsBody: readsAttribute(requests, "mcp") || readsAttribute(requests, "a2a"),
    readsModel: readsAttribute(tokens, "llm"),
    admitRequest: (exchange) =>
      admit(
        exchange,
        requests.map((descriptor) => evaluateDescriptor(descriptor, exchange)),
        1,
      ),
    async admitTokens(exchange, estimate) {
      const descriptors = tokens.map((descriptor) => evaluateDescriptor(descriptor, exchange));
      await admit(exchange, descriptors, estimate);
      exchange.setState(estimated, { descriptors, estimate });
    },
    settleTokens(exchange, used) {
      const charged = exchange.state(estimated);
      // The protocol can only add hits, so an estimate that was too high stays counted.
      if (charged === undefined || used <= charged.estimate) return;
      const request = { domain: config.domain, descriptors: charged.descriptors, hitsAddend: used - charged.estimate };
      client.call(request, Math.max(config.timeout, SETTLE_TIMEOUT_MS)).catch(reportFailure);
    },
    respond(exchange) {
      const added = exchange.state(responseHeaders);
      if (added) for (const [name, value] of Object.entries(added)) exchange.response?.headers.set(name, value);
    },
  };
}

function compileDescriptors(
  config: GlobalLimitConfig,
  type: DescriptorConfig["type"],
  env: CompileEnv,
): CompiledDescriptor[] {
  return config.descriptors
    .filter((descriptor) => descriptor.type === type)
    .map((descriptor) => ({
      entries: descriptor.entries.map(({ key, value }) => {
        const expression = env.cel(value);
        if (type === "requests" && expression.attributes.has("llm")) {
          env.warn(
            `rateLimit.global: the value \`${value}\` of a request descriptor cannot read llm.*: all requests share one budget. Use type: tokens.`,
          );
        }
        return { key, value: expression };
      }),
    }));
}

function readsAttribute(descriptors: readonly CompiledDescriptor[], attribute: string): boolean {
  return descriptors.some(({ entries }) => entries.some(({ value }) => value.attributes.has(attribute)));
}

function evaluateDescriptor({ entries }: CompiledDescriptor, exchange: Exchange): RlsDescriptor {
  return {
    entries: entries.map(({ key, value }) => ({ key, value: keyOf(value, exchange.celAttributes) ?? NO_VALUE })),
  };
}

function toGatewayError(exchange: Exchange, config: GlobalLimitConfig, result: ServiceResult): GatewayError {
  return rateLimitedError(exchange, result.reading, {
    detail: rejectionDetail(config),
    headers: result.responseHeaders,
    ...(result.body === undefined ? {} : { message: result.body }),
  });
}

function rejectionDetail({ host, domain }: GlobalLimitConfig): string {
  return `the rate limit service ${host} rejected the request (domain ${domain})`;
}

function failureReport(config: GlobalLimitConfig, env: CompileEnv, failures: Counter): (error: Error) => void {
  const logger = env.logger.for("policies");
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  let unlogged = 0;
  return (error) => {
    failures.add();
    unlogged += 1;
    if (env.clock.monotonicMs() - loggedAtMs < LOG_INTERVAL_MS) return;
    loggedAtMs = env.clock.monotonicMs();
    logger.warn("the rate limit service did not respond", {
      host: config.host,
      failureMode: config.failureMode,
      failures: unlogged,
      reason: error.message,
    });
    unlogged = 0;
  };
}

function openView(config: GlobalLimitConfig, env: CompileEnv): GlobalLimitState {
  const state: GlobalLimitState = { rejectionCount: 0, unregister: () => undefined };
  state.unregister = env.limits.register(() => [
    { owner: env.scopeName, rule: { global: config }, bucketsInUse: 0, refusals: state.rejectionCount, buckets: [] },
  ]);
  return state;
}

export interface ServiceResult {
  /** The value is undefined if the service reported no limit. */
  readonly reading: LimitReading | undefined;
  /** Excludes the `x-ratelimit-*` headers, which are written from `reading`. */
  readonly responseHeaders: Readonly<Record<string, string>>;
  readonly requestHeaders: Readonly<Record<string, string>>;
  readonly body: string | undefined;
}

export function parseServiceResponse(response: RlsResponse): ServiceResult {
  const {
    [LIMIT_HEADER]: limit,
    [REMAINING_HEADER]: remaining,
    [RESET_HEADER]: reset,
    ...others
  } = parseHeaders(response.responseHeadersToAdd);
  const fromStatuses = tightest(response.statuses);
  const fromHeaders =
    limit === undefined || remaining === undefined || reset === undefined
      ? undefined
      : headerReading(limit, remaining, reset);
  return {
    reading: fromHeaders ?? fromStatuses,
    responseHeaders: others,
    requestHeaders: parseHeaders(response.requestHeadersToAdd),
    body: response.rawBody.length === 0 ? undefined : Buffer.from(response.rawBody).toString("utf8"),
  };
}

/** Clients get the vendor header only in a 429 response. */
export function withoutVendorHeader(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const { [VENDOR_HEADER]: _only429, ...others } = headers;
  return others;
}

function tightest(statuses: readonly RlsStatus[]): LimitReading | undefined {
  let found: LimitReading | undefined;
  for (const { currentLimit, limitRemaining, durationUntilReset } of statuses) {
    if (!currentLimit || currentLimit.requestsPerUnit === 0) continue;
    const windowSeconds = UNIT_SECONDS[currentLimit.unit];
    const share = Math.min(1, limitRemaining / currentLimit.requestsPerUnit);
    if (found !== undefined && found.share <= share) continue;
    const { seconds, nanos } = durationUntilReset ?? { seconds: windowSeconds ?? 1, nanos: 0 };
    found = {
      limit:
        windowSeconds === undefined
          ? String(currentLimit.requestsPerUnit)
          : `${currentLimit.requestsPerUnit};w=${windowSeconds}`,
      rule: SERVICE_LIMIT,
      remaining: limitRemaining,
      resetSeconds: Math.max(1, Math.min(Number.MAX_SAFE_INTEGER, Math.ceil(Number(seconds) + nanos / 1e9))),
      share,
    };
  }
  return found;
}

/** Parses `10` or `10, 10;w=60`. The first number is the limit that applies. */
function headerReading(limit: string, remaining: string, reset: string): LimitReading | undefined {
  const maximum = Number.parseInt(limit, 10);
  const left = Number.parseInt(remaining, 10);
  const resetSeconds = Number.parseInt(reset, 10);
  // Larger numbers could be formatted with an exponent.
  if (![maximum, left, resetSeconds].every(Number.isSafeInteger)) return undefined;
  if (maximum <= 0 || left < 0 || resetSeconds < 0) return undefined;
  return {
    rule: SERVICE_LIMIT,
    limit,
    remaining: left,
    resetSeconds: Math.max(1, resetSeconds),
    share: Math.min(1, left / maximum),
  };
}

function parseHeaders(headers: readonly RlsHeader[]): Record<string, string> {
  const result: Record<string, string> = {};
  for (const { key, value, rawValue } of headers) {
    const name = key.toLowerCase();
    const text = value === "" && rawValue.length > 0 ? Buffer.from(rawValue).toString("latin1") : value;
    if (isHeaderName(name) && isHeaderValue(text) && canServiceChange(name)) result[name] = text;
  }
  return result;
}
