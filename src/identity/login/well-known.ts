/**
 * Defines the well-known paths of a protected resource (RFC 9728, RFC 8414, OpenID Connect discovery). Paths exist with
 * the resource's path as a suffix, so that several protected routes of a listener do not collide, and most also exist
 * without it, because some clients drop the path.
 */
import { canonicalPath } from "../../http/request-path.ts";

export interface LoginEndpoint {
  readonly kind: "protected-resource" | "authorization-server" | "registration" | "authorize" | "token" | "callback";
  readonly suffix: string;
  /** True if the path does not name the resource, so another resource may serve its documents at the same path. */
  readonly isShared: boolean;
}

const PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource";
const LITERAL_RESOURCE = `${PROTECTED_RESOURCE}/mcp`;
const AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server";
const OPENID_CONFIGURATION = "/.well-known/openid-configuration";

/** Returns `/mcp` for `https://host/mcp` or `https://host/mcp/`, and an empty string for the root. */
export function resourceSuffix(resource: string): string {
  return new URL(resource).pathname.replace(/\/+$/, "");
}

export function resourceMetadataUrl(resource: string): string {
  return `${new URL(resource).origin}${PROTECTED_RESOURCE}${resourceSuffix(resource)}`;
}

/** `base` is the origin by which clients reach the gateway. */
export function gatewayEndpoints(base: string, suffix: string) {
  const server = `${base}${AUTHORIZATION_SERVER}${suffix}`;
  return {
    issuer: `${base}${suffix}`,
    register: `${server}/client-registration`,
    authorize: `${server}/authorize`,
    token: `${server}/token`,
    callback: `${server}/callback`,
  };
}

export function loginEndpoints(
  resource: string,
  proxiesLogin: boolean,
  takesCallback = false,
): ReadonlyMap<string, LoginEndpoint> {
  const endpoints = new Map<string, LoginEndpoint>();
  const own = resourceSuffix(resource);
  // Paths without a suffix are added last and only if unused, so a resource at `/token` keeps its own document.
  for (const suffix of own === "" ? [""] : [own, ""]) {
    const add = (written: string, kind: LoginEndpoint["kind"]): void => {
      const path = canonicalPath(written);
      if (!endpoints.has(path)) endpoints.set(path, { kind, suffix, isShared: suffix !== own });
    };
    add(`${PROTECTED_RESOURCE}${suffix}`, "protected-resource");
    add(`${AUTHORIZATION_SERVER}${suffix}`, "authorization-server");
    add(`${OPENID_CONFIGURATION}${suffix}`, "authorization-server");
    // OpenID Connect Discovery appends the well-known path to the issuer instead of inserting it before the issuer's
    // path.
    if (suffix !== "") add(`${suffix}${OPENID_CONFIGURATION}`, "authorization-server");
    add(`${AUTHORIZATION_SERVER}${suffix}/client-registration`, "registration");
    if (takesCallback && suffix === own) add(`${AUTHORIZATION_SERVER}${suffix}/callback`, "callback");
    if (proxiesLogin) {
      add(`${AUTHORIZATION_SERVER}${suffix}/authorize`, "authorize");
      add(`${AUTHORIZATION_SERVER}${suffix}/token`, "token");
    }
  }
  if (!endpoints.has(LITERAL_RESOURCE))
    endpoints.set(LITERAL_RESOURCE, { kind: "protected-resource", suffix: own, isShared: true });
  return endpoints;
}

const MCP_PROTOCOL_VERSION = "2025-06-18";

export type ResourceMetadata = Readonly<Record<string, unknown>> & { readonly resource: string };

export function resourceDocument(configured: ResourceMetadata): Record<string, unknown> {
  const { origin } = new URL(configured.resource);
  const document: Record<string, unknown> = {
    resource: configured.resource,
    authorization_servers: [gatewayEndpoints(origin, resourceSuffix(configured.resource)).issuer],
    mcp_protocol_version: MCP_PROTOCOL_VERSION,
    resource_type: "mcp-server",
  };
  for (const [name, value] of Object.entries(configured)) {
    if (Array.isArray(value) && value.length === 0) continue;
    document[snakeCase(name)] = value;
  }
  return document;
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
