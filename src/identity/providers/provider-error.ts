/**
 * Failures around a login, in two kinds: what went wrong between the gateway and the provider (an answer of ours,
 * with the detail for the operator), and what a client's OAuth request did wrong (RFC 6749 section 5.2, RFC 7591
 * section 3.2.2: a JSON body that OAuth clients understand).
 */

import { ExpectedError } from "../../base/expected-error.ts";
import { urlLabel } from "../../base/url-label.ts";
import { GatewayError } from "../../core/errors.ts";
import { FetchError } from "../../http/fetch.ts";

/** A failure is remembered about as long (discovery.ts). */
const METADATA_RETRY_SECONDS = "2";

export type OAuthError = "invalid_request" | "invalid_client" | "invalid_client_metadata" | "invalid_redirect_uri";

export class OAuthRequestError extends ExpectedError {
  readonly error: OAuthError;

  constructor(error: OAuthError, description: string) {
    super(description);
    this.name = "OAuthRequestError";
    this.error = error;
  }
}

/** Whatever went wrong between us and the provider, as an answer to the client. */
export function providerError(error: unknown, url: string): GatewayError {
  if (error instanceof GatewayError) return error;
  const options = { detail: `${urlLabel(url)}: ${detailOf(error)}`, cause: error };
  const isTimeout = error instanceof FetchError && error.reason === "timeout";
  if (isTimeout)
    return new GatewayError("backend_timeout", {
      ...options,
      message: "the identity provider did not respond in time",
    });
  return new GatewayError("backend_unavailable", { ...options, message: "the identity provider could not be reached" });
}

export function invalidProviderAnswer(detail: string): GatewayError {
  return new GatewayError("backend_response_invalid", {
    message: "the identity provider's response is not valid",
    detail,
  });
}

/**
 * The provider's metadata is not to be had, for whatever reason: come again. (A 502 here is read as "there is none" by
 * clients, which then guess where the endpoints are.)
 */
export function metadataUnavailable(error: unknown): GatewayError {
  return new GatewayError("not_ready", {
    message: error instanceof GatewayError ? error.message : "the identity provider's metadata is not available",
    detail: detailOf(error),
    cause: error,
    headers: { "retry-after": METADATA_RETRY_SECONDS },
  });
}

/** What the operator should read: the detail where there is one. */
export function detailOf(error: unknown): string {
  if (error instanceof GatewayError) return error.detail ?? error.message;
  return error instanceof Error ? error.message : String(error);
}
