/**
 * Creates responses of the gateway itself. Hooks return them (preflight, metadata, direct response), and GatewayErrors
 * without a protocol-specific format (JSON-RPC, LLM APIs) are rendered with these functions.
 */
import { BodyIncomplete, BodyTooLarge } from "../http/body.ts";
import { HeaderList } from "../http/headers.ts";
import { RequestError, type RequestErrorKind } from "../http/request-head.ts";
import { safeJson } from "../json/safe-json.ts";
import { ERRORS, type ErrorCode, GatewayError } from "./errors.ts";

export interface Reply {
  readonly status: number;
  readonly headers: HeaderList;
  readonly body: Buffer | undefined;
  /** Set if the body may contain credentials (for example tokens), so that traces do not keep it. */
  readonly confidential?: true;
}

export function textReply(status: number, text: string, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, headers: withType(headers, "text/plain; charset=utf-8"), body: Buffer.from(text) };
}

export function jsonReply(status: number, value: unknown, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, headers: withType(headers, "application/json"), body: Buffer.from(safeJson(value)) };
}

export function emptyReply(status: number, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, headers: HeaderList.of(headers), body: undefined };
}

/** Maps the gateway's error codes to OAuth `error` codes if they differ. */
const OAUTH_ERROR: Partial<Record<ErrorCode, string>> = { authorization_denied: "forbidden" };

export function errorReply(error: GatewayError): Reply {
  const headers: Record<string, string> = { "x-gateway-error": error.code, ...error.headers };
  if (ERRORS[error.code].form === "text") return textReply(error.status, error.message, headers);
  const body = { error: OAUTH_ERROR[error.code] ?? error.code, error_description: error.message };
  return jsonReply(error.status, body, headers);
}

/**
 * Converts any thrown value to a GatewayError. Incomplete and oversized bodies are client errors. Any other value is a
 * defect in the gateway, and its message is not sent to the client.
 */
export function asGatewayError(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  if (thrown instanceof BodyIncomplete)
    return new GatewayError("bad_request", { message: "bad request: the body ended early", cause: thrown });
  if (thrown instanceof BodyTooLarge) return new GatewayError("body_too_large", { cause: thrown });
  if (thrown instanceof RequestError) return requestRejection(thrown);
  return new GatewayError("internal", { cause: thrown });
}

const REJECTED: Readonly<Record<RequestErrorKind, ErrorCode>> = {
  bad: "bad_request",
  "too-large": "too_many_headers",
  version: "http_version",
  extensions: "body_too_large",
  method: "method_not_allowed",
  expectation: "expectation_failed",
};

function requestRejection({ kind, message }: RequestError): GatewayError {
  if (kind === "bad") return new GatewayError("bad_request", { message: `bad request: ${message}` });
  const headers = kind === "method" ? { allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" } : {};
  return new GatewayError(REJECTED[kind], { headers });
}

function withType(headers: Readonly<Record<string, string>>, type: string): HeaderList {
  const list = HeaderList.of(headers);
  if (!list.has("content-type")) list.add("content-type", type);
  return list;
}
