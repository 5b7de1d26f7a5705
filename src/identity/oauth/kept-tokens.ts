/**
 * Caches the tokens that the gateway obtains for the tokens of its clients, until they expire, for at most five minutes.
 */
import { hash } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readMembers } from "../../json/read-json.ts";

const OBTAINED_TOKEN = peerInput("identity-provider/obtained-token");

const MAX_KEPT_TOKENS = 10_000;
const MAX_KEPT_TOKEN_BYTES = 16 * 1024 * 1024;
/** A token is not used this shortly before it expires, because the request takes time. */
const EARLY_MS = 15_000;
/** Limits how long a token is reused, because the client's permission may have been revoked. */
const MAX_KEPT_MS = 300_000;

export interface KeptTokens {
  /** True if every request has the same token. */
  readonly isShared: boolean;
  /** Rejects with the error of the request for the token. */
  get(subject: string): Promise<string>;
}

export interface ObtainedToken {
  readonly token: string;
  readonly untilMs: number;
}

/** Requests that need the same token at the same time share one token request. */
export function keptTokens(
  isShared: boolean,
  clock: Clock,
  obtain: (subject: string) => Promise<ObtainedToken>,
): KeptTokens {
  const kept = new LRUCache<string, ObtainedToken>({
    max: MAX_KEPT_TOKENS,
    maxSize: MAX_KEPT_TOKEN_BYTES,
    sizeCalculation: ({ token }) => token.length,
  });
  const running = new Map<string, Promise<string>>();

  async function obtained(key: string, subject: string): Promise<string> {
    const { token, untilMs } = await obtain(subject);
    const nowMs = clock.now();
    const limitMs = Math.min(untilMs - EARLY_MS, nowMs + MAX_KEPT_MS, isShared ? Infinity : expiryMs(subject));
    if (limitMs > nowMs) kept.set(key, { token, untilMs: limitMs });
    return token;
  }

  return {
    isShared,
    get(subject) {
      const key = isShared ? "" : hash("sha256", subject, "base64");
      const known = kept.get(key);
      if (known !== undefined && known.untilMs > clock.now()) return Promise.resolve(known.token);
      const waiting = running.get(key);
      if (waiting !== undefined) return waiting;
      const started = obtained(key, subject).finally(() => running.delete(key));
      running.set(key, started);
      return started;
    },
  };
}

/** The server verifies the token. Here the expiry only bounds how long the result is kept. */
function expiryMs(token: string): number {
  const payload = token.split(".")[1];
  const claims = payload === undefined ? undefined : readMembers(OBTAINED_TOKEN, Buffer.from(payload, "base64url"));
  return typeof claims?.exp === "number" ? claims.exp * 1000 : Infinity;
}
