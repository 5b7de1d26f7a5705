/**
 * A provider that follows the standards: its own RFC 8414 or OpenID Connect metadata says where everything is.
 * The gateway presents it under its own URL, like the adapters do, so that clients meet one shape only.
 */
import {
  AUDIENCE_MEND,
  facadeMetadata,
  type IdentityProvider,
  type ProviderOptions,
  withoutLastSlash,
} from "./provider.ts";

export function plain({ issuer }: ProviderOptions): IdentityProvider {
  const { origin, pathname } = new URL(issuer);
  const path = withoutLastSlash(pathname);
  const base = withoutLastSlash(issuer);
  const urls = [
    `${origin}/.well-known/oauth-authorization-server${path}`,
    `${base}/.well-known/openid-configuration`,
    // The form that the MCP specification adds for issuers with a path.
    `${origin}/.well-known/openid-configuration${path}`,
  ];

  return {
    name: "plain",
    keySetUrl: undefined,
    discoveryUrls: [...new Set(urls)],
    discoveredIssuer: issuer,

    metadata(discovered, gateway) {
      const { registration_endpoint, ...document } = facadeMetadata(discovered, gateway);
      return discovered.registration_endpoint === undefined ? document : { ...document, registration_endpoint };
    },

    registrationUrl: (discovered) => discovered.registration_endpoint as string | undefined,

    mend: ({ check }) => (check === "audience" ? AUDIENCE_MEND : undefined),
  };
}
