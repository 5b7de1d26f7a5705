/**
 * The protected resource metadata document (spec 2.4, RFC 9728): what the gateway knows, then every configured key in
 * snake_case, which may override what is computed. What is not configured is absent, and so are empty lists
 * (RFC 9728 section 3.2).
 */
import { gatewayEndpoints, resourceSuffix } from "./well-known.ts";

/** The MCP authorization behaviour that the documents follow (spec 9). */
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
