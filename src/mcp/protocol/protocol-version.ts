/**
 * Defines the two protocol generations and the features of each version. Legacy versions (2024-11-05 to 2025-11-25)
 * open a session with `initialize`. Modern versions (2026-07-28 and later) carry the version, identity, and
 * capabilities in every request.
 */

export const LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] as const;
export const MODERN_VERSIONS = ["2026-07-28"] as const;
export const LATEST_LEGACY = "2025-11-25";
export const LATEST_MODERN = "2026-07-28";

export const PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion";
export const CLIENT_INFO = "io.modelcontextprotocol/clientInfo";
export const CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";
export const LOG_LEVEL = "io.modelcontextprotocol/logLevel";
export const SERVER_INFO = "io.modelcontextprotocol/serverInfo";
export const SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId";

export const HEADER_MISMATCH = -32020;
export const MISSING_CAPABILITY = -32021;
export const UNSUPPORTED_VERSION = -32022;
/** 2026-07-28 replaced this code with the one for invalid parameters. */
export const LEGACY_RESOURCE_NOT_FOUND = -32002;

export const REMOVED_METHODS: ReadonlySet<string> = new Set([
  "initialize",
  "ping",
  "logging/setLevel",
  "resources/subscribe",
  "resources/unsubscribe",
]);

export type McpProtocol = "legacy" | "modern";

const legacy: ReadonlySet<string> = new Set(LEGACY_VERSIONS);
const modern: ReadonlySet<string> = new Set(MODERN_VERSIONS);

export function isLegacyVersion(version: string): boolean {
  return legacy.has(version);
}

export function isModernVersion(version: string): boolean {
  return modern.has(version);
}

/** JSON-RPC batches were added in 2025-03-26 and removed in 2025-06-18. */
export function allowsBatches(version: string): boolean {
  return version === "2025-03-26";
}

/** A priming event has an id and no data and enables a client to resume. Clients with older versions may fail on it. */
export function allowsPrimingEvents(version: string): boolean {
  return version >= "2025-11-25";
}
