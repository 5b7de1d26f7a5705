/**
 * Implements `idp_realm`, the adapter for an open-source identity provider with one issuer per realm. The gateway
 * proxies client registration and removes fields that the realm's policies reject.
 */
import { pathSegment } from "../../http/request-path.ts";
import { facadeMetadata, type IdentityProvider, type ProviderOptions, withoutLastSlash } from "./provider.ts";

/**
 * These fields are removed from registrations. A client that sets scopes (even none) loses the realm's default scopes,
 * and with them the audience of its tokens. The realm's trusted-hosts policy rejects URLs of the client's vendor.
 */
const NOT_REGISTERED = new Set(["scope", "client_uri", "logo_uri", "tos_uri", "policy_uri"]);

export function idpRealm({ issuer }: ProviderOptions): IdentityProvider {
  const realm = withoutLastSlash(issuer);

  return {
    name: "idp_realm",
    keySetUrl: `${realm}/protocol/openid-connect/certs`,
    // The OpenID Connect document exists in every version, but RFC 8414 metadata only since 26.4.0.
    discoveryUrls: [`${realm}/.well-known/openid-configuration`],
    discoveredIssuer: issuer,

    // Clients request all scopes in the metadata, and the realm's registration policy may reject them.
    metadata(discovered, gateway) {
      const { scopes_supported: _, ...document } = facadeMetadata(discovered, gateway);
      return document;
    },

    takesInitialAccessToken: true,
    fitRegistration: (registration) =>
      Object.fromEntries(Object.entries(registration).filter(([name]) => !NOT_REGISTERED.has(name))),

    registrationUrl: (discovered) =>
      (discovered.registration_endpoint as string | undefined) ?? `${realm}/clients-registrations/openid-connect`,

    completion: {
      // The realm sends itself as `iss` in the callback, but clients see the gateway as the issuer, and strict clients
      // reject the mismatch (RFC 9207). The realm's own registration API can disable `iss` for one client, with the
      // access token that the registration returned. The standard API cannot.
      request(discovered, { client_id, registration_access_token: token }) {
        if (discovered.authorization_response_iss_parameter_supported !== true) return undefined;
        if (typeof client_id !== "string" || typeof token !== "string") return undefined;
        const segment = pathSegment(client_id);
        if (segment === undefined) return undefined;
        const url = `${realm}/clients-registrations/default/${segment}`;
        return {
          url,
          token,
          body: { clientId: client_id, attributes: { "exclude.issuer.from.auth.response": "true" } },
        };
      },
      merge: (client, { registrationAccessToken }) =>
        typeof registrationAccessToken === "string"
          ? { ...client, registration_access_token: registrationAccessToken }
          : client,
      hint: "strict clients will reject the callback's `iss`: enable `Exclude Issuer From Authentication Response` for the client, or set `authorizationServers` to the realm",
    },

    hint({ check }) {
      if (check === "audience") return "add an audience mapper to the client or to one of its client scopes";
      if (check === "issuer")
        return "the realm's issuer depends on the address that the client used: set the realm's hostname, or set `issuer` to this value";
      return undefined;
    },
  };
}
