/**
 * Creates rejections of LLM requests in the client's dialect.
 */

import { ExpectedError } from "../../base/errors.ts";
import type { ErrorCode, GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { jsonReply, type Reply } from "../../core/reply.ts";
import { type Dialect, detectDialect } from "../request/dialect.ts";
import { errorBody, errorHeaders, type LlmError } from "../request/llm-errors.ts";

/**
 * Uses the error format of the client's API. Returns undefined for a rate-limited request unless it is known not to
 * stream.
 */
export function llmErrorReply(exchange: Exchange, error: GatewayError): Reply | undefined {
  const { status, message, code } = error;
  if (code === "rate_limited" && exchange.attributes.llm?.streaming !== false) return undefined;
  const { errorFormat } = detectDialect(exchange.request.path);
  const headers = { "x-gateway-error": code, ...errorHeaders(errorFormat, status), ...error.headers };
  return jsonReply(status, errorBody(errorFormat, { status, message, code }), headers);
}

export const MISSING_MODEL: LlmError = {
  status: 400,
  message: "the body has no 'model'",
  code: "missing_model",
  param: "model",
};

export const UNREADABLE_STREAM: LlmError = {
  status: 400,
  message: "response guards cannot read this kind of stream; ask without streaming",
  code: "unsupported_format",
};

export function modelNotFound(model: string | undefined): LlmError {
  return {
    status: 404,
    message: `the model ${JSON.stringify(model ?? "")} does not exist or is not available here`,
    code: "model_not_found",
    param: "model",
  };
}

export function noModelFits(model: string | undefined): LlmError {
  return {
    status: 400,
    message: `no model of ${JSON.stringify(model ?? "")} takes this request: it meets none of their conditions`,
    code: "no_model_fits",
    param: "model",
  };
}

const REJECTION_CODES: Readonly<Record<number, ErrorCode>> = {
  404: "not_found",
  413: "body_too_large",
  415: "unsupported_media_type",
};

export function recordRejection(exchange: Exchange, error: LlmError): void {
  exchange.failure ??= { code: errorCodeFor(error), source: "client", message: error.message, detail: undefined };
}

function errorCodeFor({ status, code }: LlmError): ErrorCode {
  return code === "content_rejected" ? code : (REJECTION_CODES[status] ?? "bad_request");
}

export function rejection(exchange: Exchange, { errorFormat }: Dialect, error: LlmError): Reply {
  recordRejection(exchange, error);
  return jsonReply(error.status, errorBody(errorFormat, error), {
    "x-gateway-error": errorCodeFor(error),
    ...errorHeaders(errorFormat, error.status),
  });
}

export class LlmRejection extends ExpectedError {
  readonly error: LlmError;

  constructor(error: LlmError) {
    super(error.message);
    this.name = "LlmRejection";
    this.error = error;
  }
}
