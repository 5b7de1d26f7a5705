/**
 * A secret that lives for a while: obtained when the first call needs it, renewed before it ends, one request for it
 * at a time however many calls wait. While a renewal fails the last good one serves until it ends; after a failure
 * the next attempt waits, so that a token server that is down is not asked once per call.
 */

import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../observe/log/logger.ts";

export interface Lease<Value> {
  readonly value: Value;
  /** Wall clock, milliseconds since the epoch; undefined for what does not end but may change (a file). */
  readonly expiresAtMs: number | undefined;
}

export interface Renewable<Value> {
  /** At once while it is good. Rejects with CredentialError. */
  get(): Value | Promise<Value>;
  /** The provider did not accept it: the next call gets another one, if this one is not new. */
  invalidate(): void;
}

export interface RenewalOptions<Value> {
  /** For log lines, for example `aws credentials of claude`. */
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  obtain(): Promise<Lease<Value>>;
}

/** The gateway has no credential to send. The message goes to the client and says nothing of what is inside. */
export class CredentialError extends Error {
  readonly retryAfterSeconds: number;

  constructor(retryAfterSeconds: number, cause: unknown) {
    super("the gateway could not get its credential for this provider", { cause });
    this.name = "CredentialError";
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Providers hand out the same token until a few minutes before its end. */
const RENEW_BEFORE_MS = 4 * 60_000;
/** Clocks differ, and a call takes a moment to arrive. */
const USABLE_UNTIL_MS = 15_000;
const LOOK_AGAIN_MS = 60_000;
/** A provider that refuses everything must not cause a request for a token with every call. */
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
      // A short-lived one is renewed in the middle of its life.
      renewAtMs = clock.now() + (expiresAtMs === undefined ? leftMs : Math.max(leftMs - RENEW_BEFORE_MS, leftMs / 2));
      return fresh.value;
    } catch (error) {
      lastError = error;
      renewAtMs = clock.now() + Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(failures, 5));
      failures += 1;
      const fields = { credential: name, error: error instanceof Error ? error.message : String(error) };
      // Once per outage: the retries would fill the log.
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
      // Nobody waits for this renewal, and nobody needs to hear that it failed.
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

/** One that was given and never changes. */
export function fixedValue<Value>(value: Value): Renewable<Value> {
  return { get: () => value, invalidate: () => undefined };
}
