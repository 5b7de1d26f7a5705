/**
 * Signs values that clients return, such as session ids. The key comes from the configuration, or the first replica
 * generates it and saves it in the store, which shares it with other replicas. While the store is unavailable, the
 * process signs with a temporary key, whose signatures are valid only in this process.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock, Timer } from "../base/clock.ts";
import type { Logger } from "../observe/log/logger.ts";
import { type Store, storeNamespace } from "./store.ts";

const KEY_BYTES = 32;
const SIGNATURE_BYTES = 16;
const RETRY_MS = 5_000;
const NAME = "signing";

export interface SigningKey {
  sign(text: string): string;
  isSignature(text: string, signature: string): boolean;
  /** True if the key is from the configuration, so that other processes may have it without sharing a store. */
  readonly isGiven: boolean;
}

export interface ConfigurableSigningKey extends SigningKey {
  /** The first key signs, and signatures of all keys are accepted. */
  open(given: readonly string[]): Promise<void>;
  close(): void;
}

export function createSigningKey(store: Store, clock: Clock, logger: Logger): ConfigurableSigningKey {
  const keys = storeNamespace(store, "keys");
  // This temporary key signs until the key is loaded from the store.
  let all: readonly Buffer[] = [randomBytes(KEY_BYTES)];
  let isGiven = false;
  let retrying: Timer | undefined;
  let isWarned = false;

  async function fetchKey(): Promise<void> {
    try {
      const stored = Buffer.from(await loadOrCreateKey(), "base64url");
      all = [stored, ...all];
      if (isWarned) logger.info("the signing key was read");
    } catch (error) {
      if (!isWarned)
        logger.warn("no signing key; sessions opened now end with this process", {
          reason: (error as Error).message,
        });
      isWarned = true;
      retrying = clock.after(RETRY_MS, () => void fetchKey());
    }
  }

  async function loadOrCreateKey(): Promise<string> {
    const existing = await keys.get(NAME);
    if (existing !== undefined) return existing;
    const created = randomBytes(KEY_BYTES).toString("base64url");
    if (!(await keys.replace(NAME, undefined, created))) return (await keys.get(NAME)) ?? created;
    await keys.sync();
    return created;
  }

  const signedWith = (key: Buffer, text: string): Buffer =>
    createHmac("sha256", key).update(text).digest().subarray(0, SIGNATURE_BYTES);

  return {
    get isGiven() {
      return isGiven;
    },
    async open(given) {
      if (given.length === 0) {
        await fetchKey();
        return;
      }
      isGiven = true;
      all = given.map((text) => createHmac("sha256", "gateway session key").update(text).digest());
    },
    sign: (text) => signedWith(all[0] as Buffer, text).toString("base64url"),
    isSignature(text, signature) {
      const shown = Buffer.from(signature, "base64url");
      if (shown.length !== SIGNATURE_BYTES || shown.toString("base64url") !== signature) return false;
      return all.some((key) => timingSafeEqual(signedWith(key, text), shown));
    },
    close: () => retrying?.cancel(),
  };
}

export const noSigningKey: SigningKey = { sign: () => "", isSignature: () => false, isGiven: false };
