/**
 * Manages a secret that expires. The secret is obtained on first use and renewed when it is used shortly before its
 * expiry.
 */

import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../record/log/logger.ts";

export interface Lease<Value> {
  readonly value: Value;
  /** Undefined for a value without a known expiry, such as keys from a file. */
  readonly expiresAtMs: number | undefined;
}

export interface Renewable<Value> {
  /** Returns synchronously while the value is valid. Rejects with `CredentialError` if no value can be obtained. */
  get(): Value | Promise<Value>;
  invalidate(): void;
}

export interface RenewalOptions<Value> {
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  obtain(): Promise<Lease<Value>>;
}

/** The client receives the message, so it reveals no details. */
export class CredentialError extends Error {
  readonly retryAfterSeconds: number;

  constructor(retryAfterSeconds: number, cause: unknown) {
    super("the gateway could not get its credential for this provider", { cause });
    this.name = "CredentialError";
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Some servers return the same token until a few minutes before it expires, so an earlier renewal has no effect. */
const RENEW_BEFORE_MS = 4 * 60_000;
/** Allows for clock skew and the time until the request arrives. */
const USABLE_UNTIL_MS = 15_000;
const LOOK_AGAIN_MS = 60_000;
/**
 * Values younger than this are not invalidated, so a provider that rejects every call does not cause a token request
 * per call.
 */
const NEW_MS = 60_000;
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 30_000;

export function createRenewable<Value>({ name, clock, logger, obtain }: RenewalOptions<Value>): Renewable<Value> {
  let lease: Lease<Value> | undefined;
  let obtainedAtMs = 0;
  let renewAtMs = 0;
  let failures = 0;
  let lastError: unknown;
  let inFlight: Promise<Value> | undefined;

  const usable = (): Lease<Value> | undefined =>
    lease !== undefined && (lease.expiresAtMs === undefined || clock.now() < lease.expiresAtMs - USABLE_UNTIL_MS)
      ? lease
      : undefined;
  const unavailable = (): CredentialError =>
    new CredentialError(Math.max(1, Math.ceil((renewAtMs - clock.now()) / 1000)), lastError);

  async function renew(): Promise<Value> {
    try {
      const fresh = await obtain();
      lease = fresh;
      obtainedAtMs = clock.now();
      failures = 0;
      const { expiresAtMs } = fresh;
      const leftMs = (expiresAtMs ?? clock.now() + LOOK_AGAIN_MS) - clock.now();
      // A value with a short lifetime is renewed after half of it.
      renewAtMs = clock.now() + (expiresAtMs === undefined ? leftMs : Math.max(leftMs - RENEW_BEFORE_MS, leftMs / 2));
      return fresh.value;
    } catch (error) {
      lastError = error;
      renewAtMs = clock.now() + Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(failures, 5));
      failures += 1;
      const fields = { credential: name, error: error instanceof Error ? error.message : String(error) };
      // Warns once per outage, so that retries do not fill the log.
      if (failures === 1) logger.warn("cannot get the provider's credential", fields);
      else logger.debug("still cannot get the provider's credential", fields);
      throw unavailable();
    } finally {
      inFlight = undefined;
    }
  }

  return {
    get() {
      const good = usable();
      if (clock.now() < renewAtMs) {
        if (good) return good.value;
        return inFlight ?? Promise.reject(unavailable());
      }
      inFlight ??= renew();
      if (!good) return inFlight;
      // The renewal runs in the background, and `renew` logs a failure.
      inFlight.catch(() => undefined);
      return good.value;
    },
    invalidate() {
      if (lease === undefined || clock.now() - obtainedAtMs < NEW_MS) return;
      lease = undefined;
      renewAtMs = 0;
    },
  };
}

export function fixedValue<Value>(value: Value): Renewable<Value> {
  return { get: () => value, invalidate: () => undefined };
}
