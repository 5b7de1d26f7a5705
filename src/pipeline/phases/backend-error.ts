/**
 * What a failure of a backend is in the gateway's own words: whose fault it was, and which status tells so.
 */
import { GatewayError } from "../../core/errors.ts";
import { HttpClientError } from "../../http/http-client.ts";

export function backendError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  if (!(error instanceof HttpClientError)) return new GatewayError("internal", { cause: error });
  const options = { detail: error.message, cause: error };
  switch (error.kind) {
    case "connect":
      return new GatewayError("backend_unavailable", options);
    case "connect-timeout":
      return new GatewayError("backend_timeout", options);
    case "internal":
      return new GatewayError("internal", { cause: error.cause });
    case "request":
      return new GatewayError("bad_request", { ...options, message: "bad request: it cannot be forwarded" });
    default:
      return new GatewayError("backend_response_invalid", options);
  }
}
