/**
 * Where the tokens of users lie: encrypted (AES-256-GCM) in the store, each record bound to its own key, so that a record
 * moved to another user's place cannot be opened. Whoever reads the store without the vault's key learns neither tokens
 * nor users.
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from "node:crypto";
import type { Store } from "../../lib/store/store.ts";

const IV_BYTES = 12;
const TAG_BYTES = 16;

export class Vault {
  readonly #store: Store;
  readonly #key: Buffer;

  /** `secret` has at least 32 characters. */
  constructor(store: Store, secret: string) {
    this.#store = store;
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", "mcp vault", 32));
  }

  /** Undefined if there is no such record, or it cannot be opened. Rejects while the store is unavailable. */
  async get<Value>(place: string): Promise<Value | undefined> {
    const sealed = await this.#store.get(place);
    return sealed === undefined ? undefined : this.#opened<Value>(place, sealed);
  }

  async put(place: string, value: unknown, expiresAtMs?: number): Promise<void> {
    await this.#store.set(place, this.#sealed(place, value), expiresAtMs === undefined ? {} : { expiresAtMs });
  }

  /** The value, which nobody gets a second time. */
  async take<Value>(place: string): Promise<Value | undefined> {
    const value = await this.get<Value>(place);
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
        const opened = this.#opened<Value>(key, value);
        if (opened !== undefined) found.push({ place: key, value: opened });
      }
      cursor = page.cursor;
    } while (cursor !== undefined);
    return found;
  }

  #sealed(place: string, value: unknown): string {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv("aes-256-gcm", this.#key, iv);
    cipher.setAAD(Buffer.from(place));
    const text = Buffer.concat([cipher.update(JSON.stringify(value)), cipher.final()]);
    return Buffer.concat([iv, cipher.getAuthTag(), text]).toString("base64");
  }

  #opened<Value>(place: string, sealed: string): Value | undefined {
    const bytes = Buffer.from(sealed, "base64");
    if (bytes.length < IV_BYTES + TAG_BYTES) return undefined;
    try {
      const decipher = createDecipheriv("aes-256-gcm", this.#key, bytes.subarray(0, IV_BYTES), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAAD(Buffer.from(place));
      decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
      const text = Buffer.concat([decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)), decipher.final()]);
      return JSON.parse(text.toString()) as Value;
    } catch {
      // Another key, or not this place's record: to its reader it is not there.
      return undefined;
    }
  }
}

/** A name of any length and content as a part of a place. */
export function placeName(...names: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(names)).digest("hex");
}
