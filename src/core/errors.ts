/**
 * Lists the gateway's error responses with their status, body format, and the party at fault. docs/reference/errors.md
 * is generated from this table.
 */

import { ExpectedError } from "../base/errors.ts";
import { escapeLines } from "../base/safe-text.ts";

export type ErrorSource = "client" | "upstream" | "gateway";

export interface ErrorEntry {
  readonly status: number;
  /** `text` sends the message as plain text. `oauth` sends JSON with `error` and `error_description`. */
  readonly form: "text" | "oauth";
  readonly message: string;
  readonly source: ErrorSource;
  /** The reference page shows this text, which explains the cause and the fix. */
  readonly doc: string;
}

export const ERRORS = {
  bad_request: entry(400, "text", "bad request", "client", "The request is malformed or ambiguous; the body says why."),
  unauthorized: entry(
    401,
    "oauth",
    "JWT token required",
    "client",
    "The route needs a bearer token and none was sent.",
  ),
  invalid_token: entry(
    401,
    "oauth",
    "the token is not valid",
    "client",
    "A token was sent and failed a check; the description says which, the log says more.",
  ),
  authentication_failed: entry(
    401,
    "text",
    "authentication failed",
    "client",
    "The API key or the user name and password are missing or wrong.",
  ),
  proxy_authentication_failed: entry(
    407,
    "text",
    "proxy authentication failed",
    "client",
    "The user name and password in `proxy-authorization` are missing or wrong.",
  ),
  authorization_denied: entry(
    403,
    "oauth",
    "authorization failed",
    "client",
    "An authorization rule denied the request.",
  ),
  origin_denied: entry(
    403,
    "text",
    "the request's origin is not allowed",
    "client",
    "The `Origin` or `Host` header is not one that the route accepts; the text names the setting.",
  ),
  route_not_found: entry(
    404,
    "text",
    "route not found",
    "client",
    "No route of the listener matches host, path, method, headers and query.",
  ),
  audit_unavailable: entry(
    503,
    "text",
    "the call cannot be recorded",
    "gateway",
    "`config.audit.required` is set and the audit file cannot be written; make room or fix its permissions.",
  ),
  not_found: entry(404, "text", "not found", "client", "The resource does not exist."),
  method_not_allowed: entry(
    405,
    "text",
    "method not allowed",
    "client",
    "TRACE is never accepted, and CONNECT only by forward proxies. For other methods, `allow` lists the accepted ones.",
  ),
  request_timeout: entry(
    408,
    "text",
    "the request was not received in time",
    "client",
    "The request's head or body stopped arriving.",
  ),
  body_too_large: entry(
    413,
    "text",
    "request body too large",
    "client",
    "The body is larger than what this route may buffer.",
  ),
  misdirected_request: entry(421, "text", "misdirected request", "client", "The connection is for another host."),
  unsupported_media_type: entry(
    415,
    "text",
    "unsupported media type",
    "client",
    "The content type or encoding of the body is not one that the route can read.",
  ),
  expectation_failed: entry(
    417,
    "text",
    "the expectation cannot be met",
    "client",
    "The `Expect` header asks for something other than `100-continue`.",
  ),
  rate_limited: entry(
    429,
    "text",
    "rate limit exceeded",
    "client",
    "A request or token budget is exhausted, or a client sent too many wrong passwords or API keys; `x-ratelimit-reset` and `retry-after` say when it is restored.",
  ),
  budget_exceeded: entry(
    429,
    "text",
    "a budget is exhausted",
    "client",
    "A budget of dollars or tokens is exhausted; `x-budget-reset` and `retry-after` say when its next period begins.",
  ),
  model_not_allowed: entry(
    403,
    "text",
    "the API key may not use this model",
    "client",
    "The API key has a list of models, and the request names another one or none.",
  ),
  content_rejected: entry(
    403,
    "text",
    "the content was rejected",
    "client",
    "A prompt guard rejected text of the request or the response.",
  ),
  unpriced_model: entry(403, "text", "the model has no price", "client", "See `modelCatalog` and `budgets.unpriced`."),
  unpriced_request: entry(
    403,
    "text",
    "the cost of the request is unknown",
    "client",
    "A budget or token limit applies, and the endpoint does not report its cost; see `budgets.unpriced` and `rateLimit.unpriced`.",
  ),
  too_many_headers: entry(
    431,
    "text",
    "request header fields too large",
    "client",
    "More than 100 header lines or more than 16 KiB of them.",
  ),
  internal: entry(
    500,
    "text",
    "internal error",
    "gateway",
    "A bug in the gateway; the log has the details under the same `x-request-id`.",
  ),
  policy_invalid: entry(
    500,
    "text",
    "a security policy of this route is invalid",
    "gateway",
    "An authentication or authorization policy could not be compiled; the route is blocked until it is fixed.",
  ),
  rate_limit_unavailable: entry(
    500,
    "text",
    "rate limit service unavailable",
    "gateway",
    "The external rate limit service did not respond and `failureMode` is `closed`.",
  ),
  budget_unavailable: entry(
    503,
    "text",
    "the budget cannot be checked",
    "gateway",
    "The store did not respond and `budgets.failureMode` is `closed`.",
  ),
  no_backend: entry(
    500,
    "text",
    "the route has no backend",
    "gateway",
    "The route has no backend (or all weights are 0) and no policy answered.",
  ),
  backend_unavailable: entry(
    502,
    "text",
    "the backend could not be reached",
    "upstream",
    "Connecting to the backend failed; the log names the address and the reason.",
  ),
  backend_response_invalid: entry(
    502,
    "text",
    "the backend's response was incomplete or not valid HTTP",
    "upstream",
    "The backend closed the connection early or its answer could not be parsed.",
  ),
  overloaded: entry(
    503,
    "text",
    "the gateway has reached a limit",
    "gateway",
    "A cap on sessions, children or connections is reached, or memory is short; `retry-after` says when to try again.",
  ),
  not_ready: entry(
    503,
    "text",
    "not ready yet",
    "gateway",
    "Something that the route depends on is not available yet; `retry-after` says when to try again.",
  ),
  draining: entry(503, "text", "the gateway is shutting down", "gateway", "The gateway received a signal to stop."),
  backend_timeout: entry(
    504,
    "text",
    "the backend did not respond in time",
    "upstream",
    "No response headers within the route's timeout, or no connection within 10 s (2 s to pods of a cluster).",
  ),
  http_version: entry(
    505,
    "text",
    "only HTTP/1.1 and HTTP/1.0 are supported",
    "client",
    "The request line names another HTTP version.",
  ),
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

/** A backend reports these failures inside its own protocol, usually with status 200. */
export const RECORDED = {
  tool_error: { source: "upstream", doc: "A tool ran and its result says `isError`; the reason is its first text." },
  rpc_error: {
    source: "upstream",
    doc: "An MCP request was answered with a JSON-RPC error, for example an unknown tool or invalid arguments.",
  },
} as const satisfies Record<string, { readonly source: ErrorSource; readonly doc: string }>;

export type FailureCode = ErrorCode | keyof typeof RECORDED;

const SOURCES: ReadonlyMap<string, ErrorSource> = new Map(
  Object.entries({ ...ERRORS, ...RECORDED }).map(([code, { source }]) => [code, source]),
);

/** Returns `gateway` for codes of other versions. */
export function failureSource(code: string): ErrorSource {
  return SOURCES.get(code) ?? "gateway";
}

export interface GatewayErrorOptions {
  /** The client receives this message instead of the default message. */
  readonly message?: string;
  /** The client does not receive the detail. */
  readonly detail?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

export class GatewayError extends ExpectedError {
  readonly code: ErrorCode;
  readonly status: number;
  readonly source: ErrorSource;
  readonly detail: string | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;

  constructor(code: ErrorCode, options: GatewayErrorOptions = {}) {
    // The message can quote the request, and clients print it.
    super(options.message === undefined ? ERRORS[code].message : escapeLines(options.message), {
      cause: options.cause,
    });
    this.name = "GatewayError";
    this.code = code;
    this.status = ERRORS[code].status;
    this.source = ERRORS[code].source;
    this.detail = options.detail;
    this.headers = options.headers;
  }
}

function entry(
  status: number,
  form: ErrorEntry["form"],
  message: string,
  source: ErrorSource,
  doc: string,
): ErrorEntry {
  return { status, form, message, source, doc };
}
