/**
 * Manages API keys that are created and revoked while the gateway runs, stored under the key's SHA-256. A key of a
 * namespace is accepted only by documents of that namespace. The key itself is shown once and never stored. Lookups are cached briefly, so repeated use of a key causes few store reads.
 */
import { randomBytes } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { type OwnedKey, Owner, ownedKey } from "../../base/owner.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { StoredKeyIdentity } from "../../core/dry-env.ts";
import { readJson } from "../../json/read-json.ts";
import { entriesOfAllOwners, type OwnedStore } from "../../store/owned-store.ts";
import type { Store } from "../../store/store.ts";
import { keyDigest } from "./api-keys.ts";

const RECORD = peerInput("store/api-key");

const KEY_PREFIX = "gw-";
const KEY_BYTES = 32;
const ID_DIGITS = 12;
/** A key that another thread or replica revoked may still be accepted for this long. */
const CACHE_MS = 2_000;
const MAX_CACHED_KEYS = 10_000;
const LISTED_AFTER_MS = 7 * 86_400_000;

export const keyBudget = z
  .strictObject({
    cost: z.number().min(0.000001).max(1_000_000).optional().describe("US dollars per period."),
    tokens: z.int().min(1).max(1_000_000_000_000).optional().describe("Tokens per period."),
    per: z.enum(["day", "week", "month"]).describe("The period, in UTC."),
  })
  .refine(({ cost, tokens }) => (cost === undefined) !== (tokens === undefined), "use one of `cost` and `tokens`");

export const keyModels = z
  .array(
    z
      .string()
      .min(1)
      .max(256)
      .refine((name) => name.split("*").length <= 2, "at most one * is allowed"),
  )
  .min(1)
  .max(200);

export const keyRequest = z.strictObject({
  name: z.string().min(1).max(200),
  /** The namespace of the documents that accept the key. Without it, the standalone configuration accepts the key. */
  namespace: z.string().min(1).max(253).optional(),
  expiresAtMs: z.int().min(1).optional(),
  models: keyModels.optional(),
  budget: keyBudget.optional(),
  metadata: z.record(z.string().min(1).max(100), z.string().max(1000)).default({}),
});

const record = keyRequest.extend({ createdAtMs: z.int() });

export type KeyRequest = z.output<typeof keyRequest>;

export interface StoredKey extends z.output<typeof record> {
  readonly id: string;
  readonly digest: Buffer;
}

export interface KeyFinder {
  /** May return an expired key. */
  find(key: string): Promise<StoredKey | undefined>;
  /** Returns whether keys of this namespace are accepted. */
  accepts(namespace: string | undefined): boolean;
}

/** Manages the keys of all owners. */
export interface StoredKeys {
  make(request: KeyRequest): Promise<{ readonly id: string; readonly key: string }>;
  list(): Promise<StoredKey[]>;
  revoke(id: string): Promise<boolean>;
}

export function keyId(digest: Buffer): string {
  return digest.toString("hex").slice(0, ID_DIGITS);
}

type KeyCache = Map<OwnedKey, { readonly untilMs: number; readonly found: StoredKey | undefined }>;

/** All policies of a thread share one cache per store, so that a revocation takes effect in all of them immediately. */
const cachesByStore = new WeakMap<WeakKey, KeyCache>();

function cacheOf(root: WeakKey): KeyCache {
  const cache: KeyCache = cachesByStore.get(root) ?? new Map();
  cachesByStore.set(root, cache);
  return cache;
}

/** Finds the keys of one owner. Keys without a namespace are also accepted by documents in files. */
export function createKeyFinder(owned: OwnedStore, clock: Clock): KeyFinder {
  const cache = cacheOf(owned.root);
  const former = owned.former("api-keys");
  const places = [
    { owner: owned.owner, store: owned.at("api-keys") },
    ...(former === undefined ? [] : [{ owner: Owner.standalone, store: former }]),
  ];

  async function findAt({ owner, store }: (typeof places)[number], digest: string): Promise<StoredKey | undefined> {
    const name = ownedKey(owner, digest);
    const known = cache.get(name);
    if (known !== undefined && known.untilMs > clock.monotonicMs()) return known.found;
    const value = await store.get(digest);
    const found = value === undefined ? undefined : parseRecord(digest, value);
    if (cache.size >= MAX_CACHED_KEYS) cache.clear();
    cache.set(name, { untilMs: clock.monotonicMs() + CACHE_MS, found });
    return found;
  }

  return {
    async find(key) {
      // A key without the gateway's prefix cannot be in the store.
      if (!key.startsWith(KEY_PREFIX)) return undefined;
      const digest = keyDigest(key).toString("hex");
      for (const place of places) {
        const found = await findAt(place, digest);
        if (found !== undefined) return found;
      }
      return undefined;
    },
    accepts: (namespace) => places.some(({ owner }) => owner.tenant.prefix === ownerOfKey(namespace).prefix),
  };
}

export function createStoredKeys(whole: Store, clock: Clock): StoredKeys {
  const store = entriesOfAllOwners(whole, "api-keys");
  const cache = cacheOf(whole);

  async function list(): Promise<(StoredKey & { readonly place: OwnedKey })[]> {
    const found = new Map<string, StoredKey & { readonly place: OwnedKey }>();
    let cursor: string | undefined;
    do {
      const page = await store.list("", cursor);
      for (const { key, value } of page.entries) {
        const parsed = parseRecord(key.slice(key.lastIndexOf("/") + 1), value);
        if (parsed === undefined) continue;
        const place = placeOf(parsed);
        if (place === key) found.set(place, { ...parsed, place });
      }
      cursor = page.cursor;
    } while (cursor !== undefined);
    return [...found.values()].sort((one, other) => one.createdAtMs - other.createdAtMs);
  }

  return {
    list: async () => (await list()).map(({ place: _, ...key }) => key),
    async make(request) {
      const key = `${KEY_PREFIX}${randomBytes(KEY_BYTES).toString("base64url")}`;
      const digest = keyDigest(key);
      const { expiresAtMs } = request;
      await store.set(
        placeOf({ ...request, digest }),
        JSON.stringify({ ...request, createdAtMs: clock.now() }),
        expiresAtMs === undefined ? {} : { expiresAtMs: expiresAtMs + LISTED_AFTER_MS },
      );
      await store.sync();
      return { id: keyId(digest), key };
    },
    async revoke(id) {
      const found = (await list()).filter((key) => key.id === id);
      for (const { place } of found) {
        await store.delete(place);
        cache.delete(place);
      }
      if (found.length > 0) await store.sync();
      return found.length > 0;
    },
  };
}

function placeOf({ namespace, digest }: Pick<StoredKey, "namespace" | "digest">): OwnedKey {
  return ownedKey(ownerOfKey(namespace), digest.toString("hex"));
}

export function ownerOfKey(namespace: string | undefined): Owner {
  return namespace === undefined ? Owner.standalone : Owner.ofNamespace(namespace);
}

export function storedKeyIdentity({
  id,
  name,
  namespace,
  digest,
  metadata,
  expiresAtMs,
  models,
}: StoredKey): StoredKeyIdentity {
  return { digest, namespace, metadata: { ...metadata, id, name }, expiresAtMs, models };
}

/** Returns undefined for an invalid record, so its key is not accepted. */
function parseRecord(hex: string, value: string): StoredKey | undefined {
  try {
    const digest = Buffer.from(hex, "hex");
    return { ...record.parse(readJson(RECORD, value)), id: keyId(digest), digest };
  } catch {
    return undefined;
  }
}
