/**
 * What the gateway must know about an identity provider: where its keys and metadata are, how its metadata becomes the
 * gateway's own, and who answers registration, authorize and token. Adapters are pure: no I/O, no state.
 */

import { ExpectedError } from "../../base/errors.ts";
import { urlLabel } from "../../base/url-label.ts";
import { GatewayError } from "../../core/errors.ts";
import { FetchError } from "../../http/fetch.ts";
import type { TokenClaims, TokenProblem } from "../tokens/token.ts";

export interface ProviderOptions {
  readonly issuer: string;
  /** Only for providers that have no registration of their own. */
  readonly clientId?: string | undefined;
  readonly clientSecret?: string | undefined;
  /** Hosts of client id metadata documents that stand for the client. */
  readonly clientMetadataHosts?: readonly string[] | undefined;
  /** Where logins may lead, when the gateway takes the provider's callback. */
  readonly redirectUris?: readonly string[] | undefined;
}

/** The provider's metadata: RFC 8414 or OpenID Connect discovery, checked in discovery.ts. */
export type Discovered = Readonly<Record<string, unknown>>;

/** The gateway's own addresses that stand in a metadata document. */
export interface GatewayEndpoints {
  /** The URL that the document's well-known path was built from (RFC 8414 section 3.3: clients compare it). */
  readonly issuer: string;
  readonly register: string;
  readonly authorize: string;
  readonly token: string;
}

/** RFC 7591, the members that the gateway looks at. */
export interface ClientRegistration {
  readonly client_name?: unknown;
  readonly redirect_uris?: unknown;
  readonly grant_types?: unknown;
  readonly response_types?: unknown;
}

export interface IdentityProvider {
  readonly name: "idp_realm" | "idp_tenant" | "plain";
  /** Undefined: at the `jwks_uri` of the metadata. */
  readonly keySetUrl: string | undefined;
  /** Tried in this order. */
  readonly discoveryUrls: readonly string[];
  /** What the metadata must say of itself; it differs from the tokens' issuer for v1 tenants. */
  readonly discoveredIssuer: string;
  metadata(discovered: Discovered, gateway: GatewayEndpoints): Record<string, unknown>;
  /** Where registrations go; undefined if the provider takes none. Absent where `register` answers. */
  registrationUrl?(discovered: Discovered): string | undefined;
  /** A registration's `authorization` is an initial access token of the provider (RFC 7591 section 3). */
  readonly takesInitialAccessToken?: boolean;
  /** The registration as the provider takes it, where that differs from what clients send. */
  fitRegistration?(request: ClientRegistration): ClientRegistration;
  register?(request: ClientRegistration): Record<string, unknown>;
  /** A request that makes a client just registered fit for the façade, best effort. */
  readonly completion?: RegistrationCompletion;
  /** Present where the gateway stands in front of authorize and token. */
  readonly login?: ProxiedLogin;
  /** how the operator fixes a refused token, where the provider's kind tells it. */
  hint(problem: TokenProblem, claims: TokenClaims | undefined): string | undefined;
}

export type RegisteredClient = Readonly<Record<string, unknown>>;

export interface RegistrationCompletion {
  /** Undefined when there is nothing to do. */
  request(
    discovered: Discovered,
    client: RegisteredClient,
  ): { readonly url: string; readonly token: string; readonly body: object } | undefined;
  /** What the client is told in the end. */
  merge(client: RegisteredClient, answer: Readonly<Record<string, unknown>>): RegisteredClient;
  /** For the log when the provider refused: what it means and what the operator can do. */
  readonly hint: string;
}

export interface ProxiedLogin {
  /** Undefined: where the provider's metadata says. */
  readonly authorizeUrl: string | undefined;
  readonly tokenUrl: string | undefined;
  rewriteAuthorizeQuery(query: string): string;
  rewriteTokenRequest(form: string, hasAuthorizationHeader: boolean): string;
}

/** Members that speak about the provider's own URL or would contradict what the gateway says. */
const NOT_PASSED_ON = [
  // The callback's `iss` would be the provider's, while clients know the gateway as the issuer (RFC 9207).
  "authorization_response_iss_parameter_supported",
  // A signed copy takes precedence over what we change (RFC 8414 section 2.1).
  "signed_metadata",
];

/** What all providers have in common: the gateway as the issuer, public clients, registration at the gateway. */
export function facadeMetadata(discovered: Discovered, gateway: GatewayEndpoints): Record<string, unknown> {
  const passedOn = Object.entries(discovered).filter(([name]) => !NOT_PASSED_ON.includes(name));
  const methods = discovered.token_endpoint_auth_methods_supported;
  const known = Array.isArray(methods) ? methods.filter((method) => method !== "none") : [];
  return {
    ...Object.fromEntries(passedOn),
    issuer: gateway.issuer,
    registration_endpoint: gateway.register,
    // MCP clients are public; providers often accept public clients without advertising it.
    token_endpoint_auth_methods_supported: ["none", ...known],
  };
}

/** An issuer with a path and without its last slash, as well-known URLs are built from it. */
export function withoutLastSlash(url: string): string {
  return url.endsWith("/") ? url.slice(0, -1) : url;
}

export const AUDIENCE_HINT = "configure the provider to issue one of them, or add its audience to `audiences`";

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
