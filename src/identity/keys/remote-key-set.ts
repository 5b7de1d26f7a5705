/**
 * Maintains the key set of an identity provider, which is fetched in the background and refreshed according to its
 * cache headers. Stale keys are used for up to 24 hours, and unknown keys cause at most one extra fetch in 30 s.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { urlLabel } from "../../base/url-label.ts";
import type { Fetch, FetchResponse } from "../../http/fetch.ts";
import type { Logger } from "../../record/log/logger.ts";
import { lifetimeMs, MAX_STALE_MS } from "../providers/freshness.ts";
import { errorDetail } from "../providers/provider.ts";
import { createKeyTable, type KeySet, type KeyTable, requireKeys } from "./key-set.ts";
import { readKeySet } from "./verification-key.ts";

export const KEY_FETCH_TIMEOUT_MS = 5_000;
const KEY_SET = peerInput("identity-provider/key-set");

const UNKNOWN_KEY_COOLDOWN_MS = 30_000;
const MAX_RETRY_MS = 30_000;

export interface RemoteKeySetOptions {
  readonly description: string;
  /** Called before every fetch, because the provider's metadata may change the URL. */
  readonly locate: () => Promise<string>;
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly logger: Logger;
}

export function openRemoteKeySet(options: RemoteKeySetOptions): KeySet {
  return new RemoteKeySet(options);
}

class RemoteKeySet implements KeySet {
  readonly description: string;
  generation = 0;
  readonly #options: RemoteKeySetOptions;
  #table: KeyTable | undefined;
  #body: Buffer | undefined;
  #goodMs = 0;
  #attempts = 0;
  #failures = 0;
  #lastError: string | undefined;
  #unknownKeyMs = Number.NEGATIVE_INFINITY;
  #inFlight: Promise<void> | undefined;
  #timer: Timer;
  #nextMs: number;
  #closed = false;

  constructor(options: RemoteKeySetOptions) {
    this.#options = options;
    this.description = options.description;
    // The first fetch waits for the next timer tick, because validating a configuration opens and closes key sets.
    this.#nextMs = options.clock.monotonicMs();
    this.#timer = options.clock.after(0, () => void this.#load());
  }

  current(): KeyTable | undefined {
    if (this.#table === undefined) return undefined;
    return this.#options.clock.monotonicMs() - this.#goodMs > MAX_STALE_MS ? undefined : this.#table;
  }

  refresh(): Promise<void> | undefined {
    if (this.#inFlight !== undefined) return this.#inFlight;
    if (this.#attempts === 0) return this.#load();
    const nowMs = this.#options.clock.monotonicMs();
    if (nowMs - this.#unknownKeyMs < UNKNOWN_KEY_COOLDOWN_MS) return undefined;
    // Without keys, background fetches are already scheduled, and tokens must not cause more.
    if (this.current() === undefined) return undefined;
    this.#unknownKeyMs = nowMs;
    return this.#load();
  }

  retryAfterSeconds(): number {
    return Math.max(1, Math.ceil((this.#nextMs - this.#options.clock.monotonicMs()) / 1000));
  }

  report(): Record<string, unknown> {
    return {
      source: this.description,
      keys: this.#table?.size ?? 0,
      fetches: this.#attempts,
      ...(this.#lastError === undefined ? {} : { lastError: this.#lastError }),
    };
  }

  close(): void {
    this.#closed = true;
    this.#timer.cancel();
  }

  /**
   * All callers share one fetch. They wait at most for the timeout of one fetch, even if resolving the URL takes
   * longer.
   */
  #load(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    if (this.#inFlight !== undefined) return this.#inFlight;
    this.#timer.cancel();
    this.#attempts += 1;
    this.#inFlight = new Promise((resolve) => {
      const limit = this.#options.clock.after(KEY_FETCH_TIMEOUT_MS, resolve);
      void this.#fetch().finally(() => {
        limit.cancel();
        this.#inFlight = undefined;
        resolve();
      });
    });
    return this.#inFlight;
  }

  async #fetch(): Promise<void> {
    const { clock, logger } = this.#options;
    try {
      const url = await this.#options.locate();
      const request = { url, timeoutMs: KEY_FETCH_TIMEOUT_MS, input: KEY_SET };
      const response = await this.#options.fetch(request);
      if (response.status !== 200) throw new Error(`${urlLabel(url)} returned status ${response.status}`);
      if (this.#closed) return;
      this.#adopt(response);
      if (this.#failures > 0) logger.info("key set is available again", { source: this.description });
      this.#failures = 0;
      this.#lastError = undefined;
      this.#schedule(lifetimeMs(response, clock.now()));
    } catch (error) {
      if (this.#closed) return;
      this.#failures += 1;
      this.#lastError = errorDetail(error);
      const fields = { source: this.description, error: this.#lastError, stale: this.#table !== undefined };
      if (this.#failures === 1) logger.warn("key set cannot be fetched; retrying in the background", fields);
      else logger.debug("key set still cannot be fetched", fields);
      this.#schedule(Math.min(MAX_RETRY_MS, 1000 * 2 ** Math.min(this.#failures - 1, 10)));
    }
  }

  #adopt({ body }: FetchResponse): void {
    const { clock, logger } = this.#options;
    if (this.#body?.equals(body) !== true) {
      const { keys, skipped } = requireKeys(readKeySet(body.toString("utf8")));
      this.#table = createKeyTable(keys);
      this.#body = body;
      this.generation += 1;
      logger.info("key set loaded", { source: this.description, keys: keys.length, skipped: [...skipped] });
    }
    this.#goodMs = clock.monotonicMs();
  }

  #schedule(delayMs: number): void {
    const { clock } = this.#options;
    this.#nextMs = clock.monotonicMs() + delayMs;
    this.#timer = clock.after(delayMs, () => void this.#load());
  }
}
