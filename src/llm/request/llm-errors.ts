/**
 * Writes errors in the format that the client's SDK expects, parses provider errors, and creates rejections of LLM
 * requests in the client's dialect.
 */

import { ExpectedError } from "../../base/errors.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { ErrorCode, GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { jsonReply, type Reply } from "../../core/reply.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { readMembers } from "../../json/read-json.ts";
import { type Dialect, detectDialect, type Format } from "./dialect.ts";

const ERROR_BODY = peerInput("llm-provider/error");

export interface LlmError {
  readonly status: number;
  readonly message: string;
  readonly code?: string | undefined;
  readonly param?: string | undefined;
}

const OPENAI_TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "invalid_request_error",
  413: "invalid_request_error",
  415: "invalid_request_error",
  426: "invalid_request_error",
  429: "rate_limit_error",
};
const ANTHROPIC_TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  415: "invalid_request_error",
  429: "rate_limit_error",
  529: "overloaded_error",
};
const GOOGLE_STATUS: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  429: "RESOURCE_EXHAUSTED",
  503: "UNAVAILABLE",
  504: "DEADLINE_EXCEEDED",
};

export function errorBody(format: Format, error: LlmError): Members {
  const { status, message } = error;
  switch (format) {
    case "messages":
      return { type: "error", error: { type: ANTHROPIC_TYPES[status] ?? "api_error", message } };
    case "generateContent":
      return { error: { code: status, message, status: GOOGLE_STATUS[status] ?? "INTERNAL" } };
    case "converse":
    case "invoke":
      return { message };
    default:
      return {
        error: {
          message,
          type: OPENAI_TYPES[status] ?? "server_error",
          param: error.param ?? null,
          code: error.code ?? null,
        },
      };
  }
}

const AMAZON_TYPES: Readonly<Record<number, string>> = {
  400: "ValidationException",
  401: "UnrecognizedClientException",
  403: "AccessDeniedException",
  404: "ResourceNotFoundException",
  408: "ModelTimeoutException",
  413: "ValidationException",
  429: "ThrottlingException",
  503: "ServiceUnavailableException",
  504: "ModelTimeoutException",
};

/** The AWS SDKs read the name of an error from this header. */
export function errorHeaders(format: Format, status: number): Readonly<Record<string, string>> {
  if (format !== "converse" && format !== "invoke") return {};
  return { "x-amzn-errortype": AMAZON_TYPES[status] ?? "InternalServerException" };
}

export function errorEvent(format: Format, error: LlmError): { event?: string; data: string } {
  const data = JSON.stringify(errorBody(format, error));
  if (format === "messages") return { event: "error", data };
  if (format === "responses") {
    return {
      event: "error",
      data: JSON.stringify({
        type: "error",
        code: error.code ?? "server_error",
        message: error.message,
        param: null,
        sequence_number: 0,
      }),
    };
  }
  return { data };
}

/** OpenAI, Anthropic, and Google nest the message inside `error`. AWS does not. */
export function errorMessage(body: Members | undefined, text: string): string {
  const nested = body?.error;
  const message =
    typeof nested === "object" && nested !== null
      ? (nested as Members).message
      : (body?.message ?? body?.Message ?? nested);
  return typeof message === "string" && message !== ""
    ? message
    : text.slice(0, 500) || "the provider answered with an error";
}

/** Clients recognize by this code or these words that they must shorten the conversation. */
const TOO_LONG_CODE = "context_length_exceeded";
const TOO_LONG_WORDS = "prompt is too long";

export function clientError(format: Format, status: number, body: Members | undefined, text: string): LlmError {
  const message = errorMessage(body, text);
  if ((status !== 400 && status !== 413) || !isContextLengthError(text)) return { status, message };
  // Anthropic's errors have no code, so clients look for the words.
  if (format !== "messages") return { status, message, code: TOO_LONG_CODE };
  const isNamed = message.toLowerCase().includes(TOO_LONG_WORDS);
  return { status, message: isNamed ? message : `${TOO_LONG_WORDS}: ${message}` };
}

/** Some servers reject an unknown field with 422 instead of 400. */
export function mayNameField(status: number): boolean {
  return status === 400 || status === 422;
}

const STREAM_OPTIONS = /stream_options|include_usage/i;

export function isStreamOptionsError(body: string): boolean {
  return STREAM_OPTIONS.test(body);
}

const CODES = new Set(["context_length_exceeded", "string_above_max_length", "request_too_large"]);
const WORDS =
  /prompt is too long|input is too long|too many (?:input )?tokens|maximum context length|context (?:length|window|size)|exceeds? the maximum (?:number of (?:input )?tokens|input length|allowed number of (?:input )?tokens)|reduce the length of the (?:messages|prompt|input)|input token count|max(?:imum)?_?(?:prompt|input)_?tokens/i;

export function isContextLengthError(body: string): boolean {
  const parsed = readMembers(ERROR_BODY, body);
  const error = isMembers(parsed?.error) ? parsed.error : parsed;
  for (const name of ["code", "type"]) {
    const value = error?.[name];
    if (typeof value === "string" && CODES.has(value)) return true;
  }
  return WORDS.test(errorMessage(parsed, body));
}

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
