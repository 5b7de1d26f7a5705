/**
 * Stores values, such as the tokens of users, encrypted with AES-256-GCM. Each record is bound to its store key, so a
 * record copied to another user's key cannot be decrypted.
 */
import { createHash } from "node:crypto";
import { Sealer } from "../../store/sealer.ts";
import type { Store } from "../../store/store.ts";

export class Vault {
  readonly #store: Store;
  readonly #sealer: Sealer;

  /** `secret` must be long and random. */
  constructor(store: Store, secret: string) {
    this.#store = store;
    this.#sealer = new Sealer(secret, "mcp vault");
  }

  /**
   * Resolves with undefined if the record does not exist or cannot be decrypted. Rejects while the store is
   * unavailable.
   */
  async get<Value>(place: string): Promise<Value | undefined> {
    const sealed = await this.#store.get(place);
    return sealed === undefined ? undefined : this.#sealer.open<Value>(place, sealed);
  }

  async put(place: string, value: unknown, expiresAtMs?: number): Promise<void> {
    await this.#store.set(place, this.#sealer.seal(place, value), expiresAtMs === undefined ? {} : { expiresAtMs });
  }

  /** Stores the value unless the record exists. Resolves with the stored value. */
  async putFirst<Value>(place: string, value: Value): Promise<Value> {
    if (await this.#store.replace(place, undefined, this.#sealer.seal(place, value))) return value;
    const stored = await this.get<Value>(place);
    if (stored === undefined) throw new Error("the stored record cannot be decrypted");
    return stored;
  }

  /** Resolves with the value and deletes it. At most one caller receives it. */
  async take<Value>(place: string): Promise<Value | undefined> {
    const value = await this.get<Value>(place);
    // Deletes nothing if there was no value, so that a record written after this read is kept.
    if (value === undefined) return undefined;
    return (await this.#store.delete(place)) ? value : undefined;
  }

  delete(place: string): Promise<boolean> {
    return this.#store.delete(place);
  }

  async list<Value>(prefix: string): Promise<{ readonly place: string; readonly value: Value }[]> {
    const found: { place: string; value: Value }[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.#store.list(prefix, cursor);
      for (const { key, value } of page.entries) {
        const opened = this.#sealer.open<Value>(key, value);
        if (opened !== undefined) found.push({ place: key, value: opened });
      }
      cursor = page.cursor;
    } while (cursor !== undefined);
    return found;
  }
}

/** Hashes names of any length and content to one segment of a store key. */
export function placeName(...names: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(names)).digest("hex");
}
