/**
 * `idp_realm`: an open-source identity provider with one issuer per realm (spec 4.3).
 * It follows OpenID Connect and takes registrations, but browsers cannot reach its registration endpoint and it does
 * not know RFC 8707 resources: registration passes through the gateway, which leaves out what its policies refuse;
 * everything else points at the provider.
 */
import { pathSegment } from "../../http/request-path.ts";
import { facadeMetadata, type IdentityProvider, type ProviderOptions, withoutLastSlash } from "./provider.ts";

/**
 * Left out of registrations: a client that names scopes (even none) loses the realm's default ones, and with them the
 * audience of its tokens; the realm's trusted-hosts policy refuses pages of the client's vendor.
 */
const NOT_REGISTERED = new Set(["scope", "client_uri", "logo_uri", "tos_uri", "policy_uri"]);

export function idpRealm({ issuer }: ProviderOptions): IdentityProvider {
  const realm = withoutLastSlash(issuer);

  return {
    name: "idp_realm",
    keySetUrl: `${realm}/protocol/openid-connect/certs`,
    // The OpenID Connect document exists in every version; RFC 8414 metadata only since 26.4.0 (spec 9).
    discoveryUrls: [`${realm}/.well-known/openid-configuration`],
    discoveredIssuer: issuer,

    // Clients that find scopes here ask for all of them, and the realm's registration policy refuses most.
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
      // The realm would name itself as `iss` in the callback, but clients know the gateway as the issuer and strict ones
      // then refuse (RFC 9207). Its own registration interface can switch that off for one client, with the access
      // token that the registration just returned; the standard one cannot.
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
      // Every use of the token replaces it.
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
