/**
 * Implements the adapter for standard providers, which are configured by their RFC 8414 or OpenID Connect metadata.
 */
import { parseForm, requireUnique, serializeForm } from "./oauth-form.ts";
import { registeredAs, withSecret } from "./own-client.ts";
import {
  AUDIENCE_HINT,
  facadeMetadata,
  type IdentityProvider,
  type ProviderOptions,
  type ProxiedLogin,
  withoutLastSlash,
} from "./provider.ts";

export function proxiesPlainLogin(options: ProviderOptions): boolean {
  const { clientId, clientSecret, clientMetadataHosts, redirectUris } = options;
  if (clientId === undefined) return false;
  return clientSecret !== undefined || redirectUris !== undefined || (clientMetadataHosts?.length ?? 0) > 0;
}

export function plain(options: ProviderOptions): IdentityProvider {
  const { issuer, clientId } = options;
  const isProxied = proxiesPlainLogin(options);
  const { origin, pathname } = new URL(issuer);
  const path = withoutLastSlash(pathname);
  const base = withoutLastSlash(issuer);
  const urls = [
    `${origin}/.well-known/oauth-authorization-server${path}`,
    `${base}/.well-known/openid-configuration`,
    // The MCP specification adds this form for issuers with a path.
    `${origin}/.well-known/openid-configuration${path}`,
  ];

  return {
    name: "plain",
    keySetUrl: undefined,
    discoveryUrls: [...new Set(urls)],
    discoveredIssuer: issuer,

    metadata(discovered, gateway) {
      const { registration_endpoint, ...document } = facadeMetadata(discovered, gateway);
      if (isProxied)
        return {
          ...document,
          registration_endpoint,
          authorization_endpoint: gateway.authorize,
          token_endpoint: gateway.token,
        };
      const registers = clientId !== undefined || discovered.registration_endpoint !== undefined;
      return registers ? { ...document, registration_endpoint } : document;
    },

    ...(clientId === undefined ? {} : { register: (registration) => registeredAs(clientId, registration) }),
    ...(clientId !== undefined && isProxied ? { login: proxied({ ...options, clientId }) } : {}),

    registrationUrl: (discovered) => discovered.registration_endpoint as string | undefined,

    hint: ({ check }) => (check === "audience" ? AUDIENCE_HINT : undefined),
  };
}

/** Rejects repeated parameters, because the gateway and the provider could each use a different value. */
function proxied(client: { readonly clientId: string; readonly clientSecret?: string | undefined }): ProxiedLogin {
  const unique = (text: string) => {
    const pairs = parseForm(text);
    // Several resources are allowed (RFC 8707 section 2).
    requireUnique(pairs.filter(({ name }) => name !== "resource"));
    return pairs;
  };
  return {
    authorizeUrl: undefined,
    tokenUrl: undefined,
    rewriteAuthorizeQuery: (query) => serializeForm(unique(query)),
    rewriteTokenRequest: (form, hasAuthorizationHeader) => withSecret(unique(form), client, hasAuthorizationHeader),
  };
}
