/**
 * The protocol's two eras. Legacy revisions (2024-11-05 to 2025-11-25) open a session with `initialize`; modern
 * ones (from 2026-07-28) carry version, identity and capabilities in every request. The names that tell them
 * apart, and what each revision allows, stand here.
 */

export const LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] as const;
export const MODERN_VERSIONS = ["2026-07-28"] as const;
export const LATEST_LEGACY = "2025-11-25";
export const LATEST_MODERN = "2026-07-28";

/** Assumed for a request that names no version and no session (2025-06-18, transports). */
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
/** Before 2026-07-28: a resource does not exist. */
export const LEGACY_RESOURCE_NOT_FOUND = -32002;

/** Methods that the modern revisions took out. */
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

/** Only that one revision has JSON-RPC batches (added 2025-03-26, removed 2025-06-18). */
export function allowsBatches(version: string): boolean {
  return version === "2025-03-26";
}

/** An event with an id and no data primes a client for resuming; older clients would stumble over it. */
export function allowsPrimingEvents(version: string): boolean {
  return version >= "2025-11-25";
}
