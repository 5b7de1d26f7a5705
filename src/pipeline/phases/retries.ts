/**
 * Whether another attempt follows a failed one, and after how long. Without a retry policy there is one exception: a
 * kept connection that the backend had closed is worth one more try.
 */
import type { GatewayError } from "../../core/errors.ts";
import type { RetrySettings } from "../../core/policy.ts";

const STALE_RETRY: RetrySettings = { attempts: 1, backoffMs: 0, codes: new Set() };

export class Retries {
  #settings: RetrySettings = STALE_RETRY;
  #started = 0;

  /** An attempt starts; true if no other may follow it. */
  begin(settings: RetrySettings | undefined): boolean {
    this.#settings = settings ?? STALE_RETRY;
    const isLast = this.#started >= this.#settings.attempts;
    this.#started += 1;
    return isLast;
  }

  /** How long to wait before the next attempt; undefined if the error is the answer. */
  delayMs(error: GatewayError): number | undefined {
    const { attempts, backoffMs } = this.#settings;
    const isWanted = this.#settings !== STALE_RETRY || isStale(error);
    if (!isWanted || this.#started > attempts) return undefined;
    return backoffMs === 0 ? 0 : backoffMs * 2 ** (this.#started - 1);
  }
}

function isStale(error: GatewayError): boolean {
  return (error.cause as { kind?: string } | undefined)?.kind === "stale";
}
