/**
 * `extAuthz`: an external service allows or denies requests, over Envoy's check API (gRPC) or plain HTTP. If the
 * service does not respond in time, the request is rejected unless `failureMode` is `open`.
 */
import { LRUCache } from "lru-cache";
import { z } from "zod";
import type { Expression } from "../../cel/expression.ts";
import { ConfigError } from "../../core/config-error.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import { bodyFor, definePolicy, type Hooks, sending } from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import {
  celSource,
  changeableHeaderName,
  duration,
  durationOrExpression,
  exactlyOneOf,
  headerName,
  hostAndPort,
  markLocal,
  serverUrl,
} from "../../core/schema.ts";
import { MESSAGE_HEADERS } from "../../http/header-rules.ts";
import { HeaderList } from "../../http/headers.ts";
import { withholdOwnCookies } from "../../identity/access/withheld-credentials.ts";
import { evaluatedText } from "../../policy-parts/header-changes.ts";
import { applyHeaders, headerChange } from "../../policy-parts/service-headers.ts";
import { type CheckClient, checkRequest, openCheckClient, parseVerdict } from "./grpc-check.ts";
import { checkOverHttp } from "./http-check.ts";
import type { Denied, Verdict } from "./verdict.ts";

const DEFAULT_TIMEOUT_MS = 200;
/** Bounds how long a revoked permission stays in effect. */
const MAX_CACHE_TTL_MS = 300_000;
const MAX_CACHED_VERDICTS = 10_000;
const LOG_INTERVAL_MS = 10_000;
/** Expressions for `cache.ttl` return Unix times above this value, and seconds below it. */
const FIRST_UNIX_TIME = 1_000_000_000;

const schema = exactlyOneOf(
  z.strictObject({
    host: hostAndPort("the service's gRPC address")
      .optional()
      .describe("`host:port` of a service that speaks Envoy's external authorization protocol v3 over gRPC."),
    url: serverUrl()
      .optional()
      .describe(
        "A service over plain HTTP: 2xx allows the request, 5xx is a failure, and any other response is sent to the client.",
      ),
    socket: markLocal(z.string().startsWith("/", "expected the absolute path of a unix socket"), {
      what: "a unix socket",
      isLocal: () => true,
    })
      .optional()
      .describe(
        "With `url`: the unix socket of the service. The host in `url` is only sent in the Host header, for example `http://localhost/`.",
      ),
    path: celSource()
      .optional()
      .describe(
        "With `url`: a CEL expression for the path and query of the check, instead of those of `url`. If it fails, the check fails.",
      ),
    method: z.enum(["GET", "POST"]).default("GET").describe("With `url`: the method of the check. Default: GET."),
    body: celSource()
      .optional()
      .describe("With `method: POST`: a CEL expression for the body of the check. If it fails, the check fails."),
    redirect: celSource()
      .optional()
      .describe(
        "With `url`: a CEL expression for the URL to which clients are redirected if the service responds with 401, for example `'/login?next=' + url.encode(request.path)`.",
      ),
    metadata: z
      .record(z.string().min(1).max(128), celSource())
      .optional()
      .describe(
        'With `url`: values from the response of the service, for example `user: response.headers["x-user"]`. Later policies and the access log read them as `extauthz.<name>`.',
      ),
    headers: z
      .array(headerName())
      .optional()
      .describe("Request headers to send to the service. Default: all, including credentials."),
    context: z
      .record(z.string().min(1).max(128), celSource())
      .optional()
      .describe(
        "Additional CEL values for the service: `context_extensions` over gRPC, headers over HTTP. Client headers with these names are not sent. If an expression fails, its value is omitted.",
      ),
    accept: z
      .array(headerName())
      .optional()
      .describe("Headers that the service may set on the request. Default: any over gRPC, none over HTTP."),
    timeout: duration()
      .default(DEFAULT_TIMEOUT_MS)
      .describe("How long a request waits for the service. Default: 200ms."),
    failureMode: z
      .enum(["closed", "open"])
      .default("closed")
      .describe(
        "What happens when the service does not respond: `closed` rejects with 503, `open` lets the request pass.",
      ),
    cache: z
      .strictObject({
        key: z
          .union([celSource(), z.array(celSource()).min(1)])
          .describe(
            'Requests with the same value share a verdict, for example `jwt.sub + " " + request.path`. With a list, all values must be the same.',
          ),
        ttl: durationOrExpression()
          .refine((ttl) => typeof ttl === "string" || ttl <= MAX_CACHE_TTL_MS, "at most 5m")
          .describe(
            "How long a verdict is used; at most 5m. An expression returns seconds or a Unix time, for example `extauthz.expires - 5`. If it fails, the verdict is not cached.",
          ),
        maxEntries: z
          .int()
          .min(1)
          .max(MAX_CACHED_VERDICTS)
          .default(MAX_CACHED_VERDICTS)
          .describe("How many verdicts are kept. The least recently used are removed. Default: 10000."),
      })
      .optional()
      .describe("Caches verdicts. Default: the service is called for each request."),
  }),
  ["host", "url"],
).superRefine((value, context) => {
  const { url, method, body } = value;
  const onlyHttp = (["socket", "path", "body", "redirect", "metadata"] as const).filter(
    (field) => value[field] !== undefined,
  );
  if (url === undefined)
    for (const field of onlyHttp)
      context.addIssue({ code: "custom", path: [field], message: "it can only be used with `url`" });
  if (body !== undefined && method !== "POST")
    context.addIssue({ code: "custom", path: ["body"], message: "it needs `method: POST`" });
});

export const extAuthz = definePolicy({
  kind: "extAuthz",
  doc: "Calls an external service (Envoy's check API over gRPC, or plain HTTP) that allows or denies the request.",
  scopes: ["gateway", "route"],
  role: "security",
  exemptsLogins: true,
  protection: () => "paths",
  schema,

  compile(config, env): Hooks {
    const { host, url, timeout, failureMode, cache } = config;
    const sent = config.headers && new Set(config.headers.map((name) => name.toLowerCase()));
    const accepted = config.accept && new Set(config.accept.map((name) => name.toLowerCase()));
    const context = Object.entries(config.context ?? {}).map(
      ([name, source]) => [url === undefined ? name : contextHeader(name), env.cel(source)] as const,
    );
    const compile = (source: string | undefined) => (source === undefined ? undefined : env.cel(source));
    const redirect = compile(config.redirect);
    const http = {
      url: url ?? "",
      socketPath: config.socket,
      method: config.method,
      timeoutMs: timeout,
      accepted: accepted ?? new Set<string>(),
      path: compile(config.path),
      body: compile(config.body),
      metadata: Object.entries(config.metadata ?? {}).map(([name, source]) => [name, env.cel(source)] as const),
    };
    const keys = cache && (typeof cache.key === "string" ? [cache.key] : cache.key).map((source) => env.cel(source));
    const ttl = typeof cache?.ttl === "string" ? env.cel(cache.ttl) : undefined;
    if (ttl?.reads("extauthz") === false)
      throw new ConfigError(
        undefined,
        "cache.ttl",
        "expected a duration up to 5m, or an expression that reads `extauthz`",
      );
    const verdicts =
      cache &&
      env.acquire(
        `extAuthz ${env.scopeName}`,
        config,
        () => new LRUCache<string, { verdict: Verdict; untilMs: number }>({ max: cache.maxEntries }),
      );
    const client =
      host === undefined
        ? undefined
        : env.acquire(
            `extAuthz service ${host}`,
            { egress: env.egress },
            () => openCheckClient(host, env.clock, env.egress),
            (closing: CheckClient) => closing.close(),
          );
    const service = host ?? url ?? "";
    const count = env.metrics.counter("gateway_ext_authz_total", "Verdicts of external authorization services.", [
      "owner",
      "result",
    ]);
    const logger = env.logger.for("policies");
    const responses = new StateKey<Verdict>();
    let loggedAtMs = Number.NEGATIVE_INFINITY;

    async function callService(exchange: Exchange): Promise<Verdict> {
      const headers = requestHeaders(exchange, sent);
      const values = context.map(([name, expression]) => [name, evaluatedText(expression, exchange)] as const);
      if (client) return parseVerdict(await client.check(checkRequest(exchange, headers, values), timeout));
      return checkOverHttp(env.fetch, http, exchange, headers, values);
    }

    function unavailable(exchange: Exchange, error: Error): undefined {
      count.labels(env.scopeName, "unavailable").add();
      const nowMs = env.clock.monotonicMs();
      if (nowMs - loggedAtMs >= LOG_INTERVAL_MS) {
        loggedAtMs = nowMs;
        logger.warn("the external authorization service did not respond", {
          service,
          failureMode,
          reason: error.message,
        });
      }
      removeForgedHeaders(exchange);
      if (failureMode === "open") return exchange.skip(`the service did not respond: ${error.message}`);
      throw new GatewayError("not_ready", {
        message: "the authorization service is not available",
        detail: `${service}: ${error.message}`,
        headers: { "retry-after": "1" },
        cause: error,
      });
    }

    /** Removes headers that only the service may set, in every spelling, even if the service sets none. */
    function removeForgedHeaders({ request }: Exchange): void {
      if (accepted) for (const name of accepted) request.headers.delete(name);
    }

    function apply(exchange: Exchange, verdict: Verdict): Reply | undefined {
      count.labels(env.scopeName, verdict.allowed ? "allowed" : "denied").add();
      exchange.trace?.point({
        type: "policyEvent",
        kind: "extAuthz",
        details: verdict.allowed
          ? { allowed: true, set: verdict.set.map(({ name }) => name), removed: [...verdict.remove] }
          : { allowed: false, status: verdict.status, reason: verdict.reason },
      });
      if (!verdict.allowed) return denialReply(exchange, redirected(exchange, verdict), service);
      if (verdict.metadata !== undefined) exchange.attributes.extauthz = verdict.metadata;
      const { headers } = exchange.request;
      removeForgedHeaders(exchange);
      for (const name of verdict.remove) headers.delete(name);
      applyHeaders(headers, accepted ? verdict.set.filter(({ name }) => accepted.has(name)) : verdict.set);
      if (verdict.respond.length > 0) exchange.setState(responses, verdict);
      return undefined;
    }

    /** The location is computed for each request, because requests can share a cached verdict. */
    function redirected(exchange: Exchange, verdict: Denied): Denied {
      const location = redirect === undefined || verdict.status !== 401 ? undefined : evaluatedText(redirect, exchange);
      const change = location === undefined ? undefined : headerChange("location", location, "overwrite");
      if (change?.value === undefined) return verdict;
      const cookies = verdict.headers.filter(({ name }) => name === "set-cookie");
      return { ...verdict, status: 302, headers: [...cookies, change], body: "sign in\n" };
    }

    function evaluatedTtl(expression: Expression, exchange: Exchange): number | undefined {
      const result = expression.evaluate(exchange.celAttributes);
      const seconds = result.ok ? Number(result.value) : Number.NaN;
      if (!Number.isFinite(seconds)) return undefined;
      const ttlMs = seconds >= FIRST_UNIX_TIME ? seconds * 1000 - env.clock.now() : seconds * 1000;
      return Math.min(ttlMs, MAX_CACHE_TTL_MS);
    }

    return {
      access: sending(env, "extAuthz", {
        ...bodyFor([http.path, http.body, redirect]),
        head(exchange) {
          const known = keys && cacheKey(keys.map((key) => key.evaluate(exchange.celAttributes)));
          const remembered = known === undefined ? undefined : verdicts?.get(known);
          if (remembered && env.clock.monotonicMs() < remembered.untilMs) return apply(exchange, remembered.verdict);
          return callService(exchange).then(
            (verdict) => {
              const reply = apply(exchange, verdict);
              const ttlMs = ttl === undefined ? cache?.ttl : evaluatedTtl(ttl, exchange);
              if (known !== undefined && typeof ttlMs === "number" && ttlMs > 0)
                verdicts?.set(known, { verdict, untilMs: env.clock.monotonicMs() + ttlMs });
              return reply;
            },
            (error: Error) => unavailable(exchange, error),
          );
        },
      }),
      response: {
        head(exchange) {
          const verdict = exchange.state(responses);
          if (verdict?.allowed && exchange.response) applyHeaders(exchange.response.headers, verdict.respond);
        },
      },
    };
  },
});

function denialReply(exchange: Exchange, verdict: Extract<Verdict, { allowed: false }>, service: string): Reply {
  exchange.failure ??= {
    code: "authorization_denied",
    source: "client",
    message: "authorization failed",
    detail: `the authorization service ${service} denied the request: ${verdict.reason}`,
  };
  const headers = new HeaderList(["x-gateway-error", "authorization_denied"]);
  applyHeaders(headers, verdict.headers);
  if (!headers.has("content-type")) headers.add("content-type", "text/plain; charset=utf-8");
  return {
    status: verdict.status,
    headers,
    body: Buffer.from(verdict.body === "" ? "authorization failed" : verdict.body),
  };
}

/** Throws a ConfigError for an invalid header name, because the HTTP check sends context values as headers. */
function contextHeader(name: string): string {
  const checked = changeableHeaderName().safeParse(name);
  if (checked.success) return checked.data;
  const reason = checked.error.issues[0]?.message ?? "not a valid HTTP header name";
  throw new ConfigError(undefined, `context.${name}`, `${reason}. With \`url\` each name of \`context\` is a header.`);
}

/** Joins repeated headers, because the check protocols allow one value per name. */
function requestHeaders({ request }: Exchange, sent: ReadonlySet<string> | undefined): HeaderList {
  const headers = new HeaderList();
  for (const name of request.headers.names()) {
    if (MESSAGE_HEADERS.has(name) || name === "host" || sent?.has(name) === false) continue;
    headers.add(name, request.headers.get(name) ?? "");
  }
  withholdOwnCookies(headers);
  return headers;
}

/** Returns undefined if a key fails, is empty, or is not a string. Such verdicts are not cached. */
function cacheKey(results: readonly { readonly ok: boolean; readonly value?: unknown }[]): string | undefined {
  const values = results.map(({ ok, value }) => (ok && typeof value === "string" && value !== "" ? value : undefined));
  if (values.includes(undefined)) return undefined;
  return values.length === 1 ? values[0] : JSON.stringify(values);
}
