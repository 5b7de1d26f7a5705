/**
 * Defines the adapter contract for identity providers. An adapter locates keys and metadata, converts the provider's
 * metadata to the gateway's, and defines how registration, authorize, and token requests are handled. Adapters perform
 * no I/O and have no state.
 */

import { ExpectedError } from "../../base/errors.ts";
import { urlLabel } from "../../base/url-label.ts";
import { GatewayError } from "../../core/errors.ts";
import { FetchError } from "../../http/fetch.ts";
import type { TokenClaims, TokenProblem } from "../tokens/token.ts";

export interface ProviderOptions {
  readonly issuer: string;
  readonly clientId?: string | undefined;
  readonly clientSecret?: string | undefined;
  readonly clientMetadataHosts?: readonly string[] | undefined;
  readonly redirectUris?: readonly string[] | undefined;
}

/** Represents metadata of the provider that discovery.ts has validated. */
export type Discovered = Readonly<Record<string, unknown>>;

export interface GatewayEndpoints {
  /** The document's well-known path is built from this URL. Clients compare the two (RFC 8414 section 3.3). */
  readonly issuer: string;
  readonly register: string;
  readonly authorize: string;
  readonly token: string;
}

export interface ClientRegistration {
  readonly client_name?: unknown;
  readonly redirect_uris?: unknown;
  readonly grant_types?: unknown;
  readonly response_types?: unknown;
}

export interface IdentityProvider {
  readonly name: "idp_realm" | "idp_tenant" | "plain";
  /** If undefined, the `jwks_uri` of the metadata is used. */
  readonly keySetUrl: string | undefined;
  readonly discoveryUrls: readonly string[];
  /** The `issuer` of the metadata must have this value, which differs from the tokens' issuer for v1 tenants. */
  readonly discoveredIssuer: string;
  metadata(discovered: Discovered, gateway: GatewayEndpoints): Record<string, unknown>;
  /** Returns undefined if the provider has no registration endpoint. Not called if `register` is present. */
  registrationUrl?(discovered: Discovered): string | undefined;
  /**
   * True if the `authorization` header of a registration is an initial access token of the provider (RFC 7591 section
   * 3).
   */
  readonly takesInitialAccessToken?: boolean;
  fitRegistration?(request: ClientRegistration): ClientRegistration;
  register?(request: ClientRegistration): Record<string, unknown>;
  /** Changes a client after its registration. A failure does not fail the registration. */
  readonly completion?: RegistrationCompletion;
  readonly login?: ProxiedLogin;
  hint(problem: TokenProblem, claims: TokenClaims | undefined): string | undefined;
}

export type RegisteredClient = Readonly<Record<string, unknown>>;

export interface RegistrationCompletion {
  request(
    discovered: Discovered,
    client: RegisteredClient,
  ): { readonly url: string; readonly token: string; readonly body: object } | undefined;
  merge(client: RegisteredClient, answer: Readonly<Record<string, unknown>>): RegisteredClient;
  readonly hint: string;
}

export interface ProxiedLogin {
  /** If undefined, the endpoint of the provider's metadata is used. */
  readonly authorizeUrl: string | undefined;
  readonly tokenUrl: string | undefined;
  rewriteAuthorizeQuery(query: string): string;
  rewriteTokenRequest(form: string, hasAuthorizationHeader: boolean): string;
}

const REMOVED_MEMBERS = [
  // The callback's `iss` is the provider's, but clients see the gateway as the issuer (RFC 9207).
  "authorization_response_iss_parameter_supported",
  // Signed metadata would override the gateway's changes (RFC 8414 section 2.1).
  "signed_metadata",
];

export function facadeMetadata(discovered: Discovered, gateway: GatewayEndpoints): Record<string, unknown> {
  const passedOn = Object.entries(discovered).filter(([name]) => !REMOVED_MEMBERS.includes(name));
  const methods = discovered.token_endpoint_auth_methods_supported;
  const known = Array.isArray(methods) ? methods.filter((method) => method !== "none") : [];
  return {
    ...Object.fromEntries(passedOn),
    issuer: gateway.issuer,
    registration_endpoint: gateway.register,
    // MCP clients are public, and providers often accept public clients without advertising it.
    token_endpoint_auth_methods_supported: ["none", ...known],
  };
}

/** Removes a trailing slash, because well-known URLs are built from the issuer without it. */
export function withoutLastSlash(url: string): string {
  return url.endsWith("/") ? url.slice(0, -1) : url;
}

export const AUDIENCE_HINT = "configure the provider to issue one of them, or add its audience to `audiences`";

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

export function providerError(error: unknown, url: string): GatewayError {
  if (error instanceof GatewayError) return error;
  const options = { detail: `${urlLabel(url)}: ${errorDetail(error)}`, cause: error };
  const isTimeout = error instanceof FetchError && error.reason === "timeout";
  if (isTimeout)
    return new GatewayError("backend_timeout", {
      ...options,
      message: "the identity provider did not respond in time",
    });
  return new GatewayError("backend_unavailable", { ...options, message: "the identity provider could not be reached" });
}

export function invalidProviderResponse(detail: string): GatewayError {
  return new GatewayError("backend_response_invalid", {
    message: "the identity provider's response is not valid",
    detail,
  });
}

/**
 * Returns an error with `retry-after`, so that clients retry while the provider's metadata is unavailable. They would
 * treat a 502 as missing metadata and guess the endpoints.
 */
export function metadataUnavailable(error: unknown): GatewayError {
  return new GatewayError("not_ready", {
    message: error instanceof GatewayError ? error.message : "the identity provider's metadata is not available",
    detail: errorDetail(error),
    cause: error,
    headers: { "retry-after": METADATA_RETRY_SECONDS },
  });
}

export function errorDetail(error: unknown): string {
  if (error instanceof GatewayError) return error.detail ?? error.message;
  return error instanceof Error ? error.message : String(error);
}
