/**
 * The answer to what is no request: bytes that cannot be read as one, or that did not come in time. There is no exchange
 * to answer, and the connection ends with it.
 */
import { type ErrorCode, GatewayError } from "../../core/errors.ts";
import type { Reply } from "../../core/reply.ts";
import type { RequestError, RequestErrorKind } from "../../http/h1/parse-request-head.ts";
import { responseHead } from "./response-head.ts";

const CODES: Readonly<Record<RequestErrorKind, ErrorCode>> = {
  bad: "bad_request",
  "too-large": "too_many_headers",
  version: "http_version",
  extensions: "body_too_large",
};

export function refusalOf({ kind, message }: RequestError): GatewayError {
  return new GatewayError(CODES[kind], kind === "bad" ? { message: `bad request: ${message}` } : {});
}

/** Head and body in latin1; the texts of refusals are ASCII. */
export function replyText({ body, headers, status }: Reply, now: number): string {
  headers.set("content-length", String(body?.length ?? 0));
  return responseHead(status, headers, { isChunked: false, keptSeconds: 0, now }) + (body?.toString("latin1") ?? "");
}
