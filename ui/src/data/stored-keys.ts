/**
 * Polls the API keys in the store, without the keys themselves: the gateway stores only their digests.
 */
import { getJson } from "./api.ts";
import { createPoll } from "./poll.ts";

export interface StoredKey {
  readonly id: string;
  readonly name: string;
  readonly models?: readonly string[];
  readonly budget?: { readonly cost?: number; readonly tokens?: number; readonly per: string };
  readonly spent?: number;
  readonly createdAt: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly expiresAt?: string;
  readonly expired?: boolean;
}

/** Each read queries the store, so the interval is long. */
export const KEYS_INTERVAL_MS = 10_000;

export const storedKeys = createPoll(async () => {
  const { keys, error } = await getJson<{ keys?: StoredKey[]; error?: string }>("keys");
  if (keys === undefined) throw new Error(error ?? "the store is unavailable");
  return keys;
}, KEYS_INTERVAL_MS);
