/**
 * Defines the two protocol generations and the features of each version. The 2025 versions (2024-11-05 to 2025-11-25)
 * open a session with `initialize`. Versions from 2026-07-28 on carry the version, identity, and
 * capabilities in every request.
 */

export const VERSIONS_2025 = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] as const;
export const VERSIONS_2026 = ["2026-07-28"] as const;
export const LATEST_2025 = "2025-11-25";
export const LATEST_2026 = "2026-07-28";

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
export const RESOURCE_NOT_FOUND_2025 = -32002;

export const REMOVED_METHODS: ReadonlySet<string> = new Set([
  "initialize",
  "ping",
  "logging/setLevel",
  "resources/subscribe",
  "resources/unsubscribe",
]);

export type McpProtocol = "2025" | "2026";

const versions2025: ReadonlySet<string> = new Set(VERSIONS_2025);
const versions2026: ReadonlySet<string> = new Set(VERSIONS_2026);

export function is2025Version(version: string): boolean {
  return versions2025.has(version);
}

export function is2026Version(version: string): boolean {
  return versions2026.has(version);
}

/** JSON-RPC batches were added in 2025-03-26 and removed in 2025-06-18. */
export function allowsBatches(version: string): boolean {
  return version === "2025-03-26";
}

/** A priming event has an id and no data and enables a client to resume. Clients with older versions may fail on it. */
export function allowsPrimingEvents(version: string): boolean {
  return version >= "2025-11-25";
}
