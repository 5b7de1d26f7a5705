/**
 * The two protocol generations. Legacy versions (2024-11-05 to 2025-11-25) open a session with `initialize`; modern
 * ones (from 2026-07-28) carry the version, identity, and capabilities in every request. Defines their names and the
 * features of each version.
 */

export const LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] as const;
export const MODERN_VERSIONS = ["2026-07-28"] as const;
export const LATEST_LEGACY = "2025-11-25";
export const LATEST_MODERN = "2026-07-28";

/** The version of a request without a version and a session (2025-06-18, transports). */
export const DEFAULT_VERSION = "2025-03-26";

export const PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion";
export const CLIENT_INFO = "io.modelcontextprotocol/clientInfo";
export const CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";
export const LOG_LEVEL = "io.modelcontextprotocol/logLevel";
export const SERVER_INFO = "io.modelcontextprotocol/serverInfo";
export const SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId";

/** JSON-RPC error codes of the modern revisions. */
export const HEADER_MISMATCH = -32020;
export const MISSING_CAPABILITY = -32021;
export const UNSUPPORTED_VERSION = -32022;
/** The error code for an unknown resource before 2026-07-28. */
export const LEGACY_RESOURCE_NOT_FOUND = -32002;

/** Methods that 2026-07-28 removed. */
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

/** A priming event has an id and no data, so that a client can resume. Older clients cannot handle it. */
export function allowsPrimingEvents(version: string): boolean {
  return version >= "2025-11-25";
}
