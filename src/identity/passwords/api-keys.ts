/**
 * Finds API keys by their SHA-256 digests, without keeping the keys. A key is looked up under a digest keyed with a
 * random secret, so that the lookup time reveals nothing about the keys.
 */
import { createHmac, hash, randomBytes, timingSafeEqual } from "node:crypto";
import type { ModelAccess } from "../../core/request-attributes.ts";

export interface KeyBudget {
  /** The cost is in US dollars per period. Exactly one of `cost` and `tokens` is set. */
  readonly cost?: number | undefined;
  readonly tokens?: number | undefined;
  readonly per: "day" | "week" | "month";
}

export interface ApiKeyEntry {
  readonly id: string;
  readonly digest: Buffer;
  readonly principal: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly expiresAtMs: number | undefined;
  /** The value is undefined if the key may use all models. */
  readonly access: ModelAccess | undefined;
  readonly budget: KeyBudget | undefined;
}

export interface ApiKeys {
  find(key: string): ApiKeyEntry | undefined;
}

export function keyDigest(key: string): Buffer {
  return hash("sha256", key, "buffer");
}

export function createApiKeys(entries: readonly ApiKeyEntry[]): ApiKeys {
  const secret = randomBytes(32);
  const slotOf = (digest: Buffer): string => createHmac("sha256", secret).update(digest).digest("base64");
  const bySlot = new Map(entries.map((entry) => [slotOf(entry.digest), entry]));
  return {
    find(key) {
      const digest = keyDigest(key);
      const entry = bySlot.get(slotOf(digest));
      return entry && timingSafeEqual(entry.digest, digest) ? entry : undefined;
    },
  };
}
