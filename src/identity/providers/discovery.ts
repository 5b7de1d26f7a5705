/**
 * Fetches the identity provider's metadata on demand, and uses old metadata for up to 24 hours while the provider is
 * down. The metadata is untrusted, so its issuer and URLs are checked (RFC 8414 section 3.3).
 */

import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { urlLabel } from "../../base/url-label.ts";
import { type Fetch, parseHttpUrl } from "../../http/fetch.ts";
import { readJson } from "../../json/read-json.ts";
import type { Logger } from "../../record/log/logger.ts";
import { show } from "../tokens/token.ts";
import { lifetimeMs, MAX_STALE_MS } from "./freshness.ts";
import { type Discovered, errorDetail, invalidProviderResponse, providerError } from "./provider.ts";

const METADATA = peerInput("identity-provider/discovery");

const TIMEOUT_MS = 5_000;
/** Unauthenticated clients can trigger a metadata fetch, so failures are cached this long to protect the provider. */
const FAILURE_PAUSE_MS = 2_000;

export interface DiscoveryOptions {
  readonly urls: readonly string[];
  readonly issuer: string;
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface Discovery {
  /** Rejects with a GatewayError whose detail explains the problem. */
  get(): Promise<Discovered>;
}

interface Known {
  readonly document: Discovered;
  readonly goodMs: number;
  readonly renewMs: number;
}

export function createDiscovery(options: DiscoveryOptions): Discovery {
  const { clock, logger } = options;
  let known: Known | undefined;
  let inFlight: Promise<Discovered> | undefined;
  let failed: { readonly error: unknown; readonly untilMs: number } | undefined;

  async function load(): Promise<Discovered> {
    try {
      const { document, ttlMs } = await fetchMetadata(options);
      const nowMs = clock.monotonicMs();
      known = { document, goodMs: nowMs, renewMs: nowMs + ttlMs };
      failed = undefined;
      return document;
    } catch (error) {
      const nowMs = clock.monotonicMs();
      if (!failed)
        logger.warn("identity provider metadata cannot be read", { issuer: options.issuer, error: errorDetail(error) });
      failed = { error, untilMs: nowMs + FAILURE_PAUSE_MS };
      return fallback(error);
    } finally {
      inFlight = undefined;
    }
  }

  function fallback(error: unknown): Discovered {
    if (known && clock.monotonicMs() - known.goodMs <= MAX_STALE_MS) return known.document;
    throw error;
  }

  return {
    async get() {
      const nowMs = clock.monotonicMs();
      if (known && nowMs < known.renewMs) return known.document;
      if (failed && nowMs < failed.untilMs) return fallback(failed.error);
      inFlight ??= load();
      return inFlight;
    },
  };
}

/** The URLs are tried in order. If none has a valid document, the error of the last URL is thrown. */
export async function fetchMetadata(
  options: Pick<DiscoveryOptions, "urls" | "issuer" | "fetch" | "clock">,
): Promise<{ document: Discovered; url: string; ttlMs: number }> {
  let failure: unknown;
  for (const url of options.urls) {
    try {
      const response = await options.fetch({ url, timeoutMs: TIMEOUT_MS, input: METADATA });
      if (response.status !== 200) {
        throw invalidProviderResponse(
          `${urlLabel(url)} returned status ${response.status} ${show(response.body.toString("utf8"))}`,
        );
      }
      const document = checkMetadata(response.body.toString("utf8"), options.issuer, url);
      return { document, url, ttlMs: lifetimeMs(response, options.clock.now()) };
    } catch (error) {
      failure = providerError(error, url);
    }
  }
  throw failure;
}

function checkMetadata(text: string, issuer: string, url: string): Discovered {
  let parsed: unknown;
  try {
    parsed = readJson(METADATA, text);
  } catch (error) {
    throw invalidProviderResponse(`${urlLabel(url)} ${(error as Error).message}`);
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed))
    throw invalidProviderResponse(`${urlLabel(url)} is not a JSON object`);
  const document = parsed as Record<string, unknown>;
  if (document.issuer !== issuer) {
    throw invalidProviderResponse(
      `${urlLabel(url)} has the issuer ${show(document.issuer)}, expected ${issuer}: set \`issuer\` to the exact issuer of the provider`,
    );
  }
  for (const [name, value] of Object.entries(document)) {
    if (!name.endsWith("_endpoint") && name !== "jwks_uri") continue;
    if (typeof value !== "string" || !parseHttpUrl(value))
      throw invalidProviderResponse(`${urlLabel(url)}: ${name} is ${show(value)}, not an http or https URL`);
  }
  for (const name of ["jwks_uri", "registration_endpoint"]) {
    const target = document[name];
    if (typeof target === "string" && !mayCall(target, issuer)) {
      throw invalidProviderResponse(
        `${urlLabel(url)}: ${name} is ${show(target)}; without TLS it must be at the issuer's own origin`,
      );
    }
  }
  return document;
}

/** Returns whether the URL uses TLS or is on the issuer's origin. Other URLs could lead to the internal network. */
export function mayCall(target: string, issuer: string): boolean {
  const url = new URL(target);
  return url.protocol === "https:" || url.origin === new URL(issuer).origin;
}
