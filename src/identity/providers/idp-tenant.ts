/**
 * Implements `idp_tenant`, the adapter for a cloud identity provider with one issuer per tenant. The provider has no
 * registration endpoint and rejects the RFC 8707 `resource` parameter, so the gateway handles registration itself and
 * proxies authorize and token requests.
 */
import type { FormPair } from "../../base/form.ts";
import { ConfigError } from "../../core/config-error.ts";
import { parseForm, requireUnique, serializeForm } from "./oauth-form.ts";
import { registeredAs, withSecret } from "./own-client.ts";
import { AUDIENCE_HINT, facadeMetadata, type IdentityProvider, type ProviderOptions } from "./provider.ts";

/** V1 tokens have this issuer host, but the login pages are on another host. */
const V1_ISSUER_HOST = "sts.windows.net";
const V1_LOGIN_HOST = "login.microsoftonline.com";

export function idpTenant(options: ProviderOptions): IdentityProvider {
  const { clientId, clientSecret } = options;
  if (!clientId)
    throw new ConfigError(undefined, "clientId", "`idp_tenant` needs the `clientId` of an app registration");
  const issuer = new URL(options.issuer);
  const tenantId = issuer.pathname.split("/")[1];
  if (!tenantId) throw new ConfigError(undefined, "issuer", `no tenant id in ${options.issuer}`);
  // Using the issuer's own scheme, host, and port supports national clouds and local test servers.
  const loginOrigin = issuer.hostname === V1_ISSUER_HOST ? `https://${V1_LOGIN_HOST}` : issuer.origin;
  const tenant = `${loginOrigin}/${tenantId}`;

  return {
    name: "idp_tenant",
    keySetUrl: `${tenant}/discovery/v2.0/keys`,
    discoveryUrls: [`${tenant}/v2.0/.well-known/openid-configuration`],
    discoveredIssuer: `${tenant}/v2.0`,

    metadata: (discovered, gateway) => ({
      ...facadeMetadata(discovered, gateway),
      authorization_endpoint: gateway.authorize,
      token_endpoint: gateway.token,
      code_challenge_methods_supported: ["S256"],
    }),

    register: (registration) => registeredAs(clientId, registration),

    login: {
      authorizeUrl: `${tenant}/oauth2/v2.0/authorize`,
      tokenUrl: `${tenant}/oauth2/v2.0/token`,

      rewriteAuthorizeQuery: (query) => serializeForm(withoutResource(parseForm(query))),

      rewriteTokenRequest(form, hasAuthorizationHeader) {
        return withSecret(withoutResource(parseForm(form)), { clientId, clientSecret }, hasAuthorizationHeader);
      },
    },

    hint({ check }, claims) {
      if (check === "issuer") return issuerHint(claims?.iss, issuer.hostname === V1_ISSUER_HOST);
      if (check === "audience") return `${AUDIENCE_HINT} (the client id comes as \`api://${clientId}\` or bare)`;
      return undefined;
    },
  };
}

/** Removes `resource`, ignoring case, then rejects repeated parameters (RFC 6749 section 3.1). */
function withoutResource(pairs: readonly FormPair[]): readonly FormPair[] {
  const kept = pairs.filter((pair) => pair.name.toLowerCase() !== "resource");
  requireUnique(kept);
  return kept;
}

function issuerHint(iss: unknown, expectsV1: boolean): string | undefined {
  const isV1 = typeof iss === "string" && iss.includes(`//${V1_ISSUER_HOST}/`);
  if (isV1 && !expectsV1) {
    return "the app registration issues v1 access tokens: set `issuer` to the v1 form, or its requestedAccessTokenVersion to 2";
  }
  if (!isV1 && expectsV1) return "the app registration issues v2 access tokens: set `issuer` to the v2 form";
  return undefined;
}
