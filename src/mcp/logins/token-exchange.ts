/**
 * Tokens for a server in exchange for those of its callers (RFC 8693). A token is kept for the very token that it was
 * given for, until shortly before it expires and for some minutes at most: who shows another token gets another one.
 */
import { hash } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../base/clock.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { ExchangeConfig } from "../server-side/identity-config.ts";
import { requestTokens } from "./oauth-client.ts";

const MAX_EXCHANGED_TOKENS = 10_000;
/** Not used in its last seconds: the request takes some. */
const EARLY_MS = 15_000;
/** What the provider took back since is used no longer than this. */
const KEPT_MS = 300_000;

export class TokenExchange {
  readonly #config: ExchangeConfig;
  readonly #fetch: Fetch;
  readonly #clock: Clock;
  readonly #kept = new LRUCache<string, { readonly token: string; readonly untilMs: number }>({
    max: MAX_EXCHANGED_TOKENS,
  });
  readonly #running = new Map<string, Promise<string>>();

  constructor(config: ExchangeConfig, fetch: Fetch, clock: Clock) {
    this.#config = config;
    this.#fetch = fetch;
    this.#clock = clock;
  }

  /** Rejects with an Error that says why. `untilMs`: when the caller's own token expires. */
  token(subject: string, untilMs: number): Promise<string> {
    const key = hash("sha256", subject, "base64");
    const kept = this.#kept.get(key);
    if (kept && kept.untilMs > this.#clock.now()) return Promise.resolve(kept.token);
    const running = this.#running.get(key);
    if (running !== undefined) return running;
    const exchanging = this.#exchanged(key, subject, untilMs).finally(() => this.#running.delete(key));
    this.#running.set(key, exchanging);
    return exchanging;
  }

  async #exchanged(key: string, subject: string, subjectUntilMs: number): Promise<string> {
    const { tokenUrl, clientId, clientSecret, audience, resource, scopes, subjectTokenType } = this.#config;
    const nowMs = this.#clock.now();
    const form = {
      grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
      subject_token: subject,
      subject_token_type: subjectTokenType,
      requested_token_type: "urn:ietf:params:oauth:token-type:access_token",
      ...(audience === undefined ? {} : { audience }),
      ...(resource === undefined ? {} : { resource }),
      ...(scopes === undefined ? {} : { scope: scopes.join(" ") }),
    };
    const { accessToken, expiresAtMs } = await requestTokens(
      tokenUrl,
      { clientId, clientSecret },
      form,
      this.#fetch,
      nowMs,
    );
    const untilMs = Math.min(expiresAtMs - EARLY_MS, nowMs + KEPT_MS, subjectUntilMs);
    this.#kept.set(key, { token: accessToken, untilMs });
    return accessToken;
  }
}
