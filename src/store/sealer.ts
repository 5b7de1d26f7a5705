/**
 * Encrypts (AES-256-GCM) values that other systems store or carry for the gateway. A sealed value is bound to a
 * location, such as its key in the store, and cannot be opened with a different one.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { peerInput } from "../base/peer-inputs.ts";
import { readJson } from "../json/read-json.ts";

const SEALED_VALUE = peerInput("store/sealed-value");

const IV_BYTES = 12;
const TAG_BYTES = 16;

export class Sealer {
  readonly #key: Buffer;

  /** `secret` must be long and random. Different purposes derive different keys from the same secret. */
  constructor(secret: string, purpose: string) {
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", purpose, 32));
  }

  seal(place: string, value: unknown): string {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv("aes-256-gcm", this.#key, iv);
    cipher.setAAD(Buffer.from(place));
    const text = Buffer.concat([cipher.update(JSON.stringify(value)), cipher.final()]);
    return Buffer.concat([iv, cipher.getAuthTag(), text]).toString("base64");
  }

  /** Returns undefined if the value is malformed, or was sealed with another key or for another location. */
  open<Value>(place: string, sealed: string): Value | undefined {
    const bytes = Buffer.from(sealed, "base64");
    if (bytes.length < IV_BYTES + TAG_BYTES) return undefined;
    try {
      const decipher = createDecipheriv("aes-256-gcm", this.#key, bytes.subarray(0, IV_BYTES), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAAD(Buffer.from(place));
      decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
      const text = Buffer.concat([decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES)), decipher.final()]);
      return readJson(SEALED_VALUE, text) as Value;
    } catch {
      return undefined;
    }
  }
}
