/**
 * Signs values that clients return, such as session ids. The key comes from the configuration, or the first replica
 * generates it and saves it in the store, which shares it with other replicas. While the store is unavailable, the
 * process signs with a temporary key, whose signatures are valid only in this process.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock, Timer } from "../base/clock.ts";
import type { Owner } from "../base/owner.ts";
import type { Logger } from "../record/log/logger.ts";
import { processEntries } from "./owned-store.ts";
import type { Store } from "./store.ts";

const KEY_BYTES = 32;
const SIGNATURE_BYTES = 16;
const RETRY_MS = 5_000;
const NAME = "signing";

/** What a signature is for. A signature of one purpose or owner is not valid for another. */
export const SIGNATURE_DOMAINS = [
  "login callback",
  "mcp answers",
  "mcp definitions",
  "mcp replicas",
  "mcp session",
  "mcp settings",
  "mcp tasks",
  "sign-in",
] as const;

export type SignatureDomain = (typeof SIGNATURE_DOMAINS)[number];

type SignedValues = readonly (string | null)[];

/** Signs for one owner. */
export interface SigningKey {
  sign(domain: SignatureDomain, ...values: SignedValues): string;
  isSignature(signature: string, domain: SignatureDomain, ...values: SignedValues): boolean;
  /** True if the key is from the configuration, so that other processes may have it without sharing a store. */
  readonly isGiven: boolean;
}

export interface ProcessSigningKey {
  of(owner: Owner): SigningKey;
}

export interface ConfigurableSigningKey extends ProcessSigningKey {
  /** The first key signs, and signatures of all keys are accepted. */
  open(given: readonly string[]): Promise<void>;
  close(): void;
}

export function createSigningKey(store: Store, clock: Clock, logger: Logger): ConfigurableSigningKey {
  const keys = processEntries(store, "keys");
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

  const forOwner = (owner: Owner): SigningKey => ({
    get isGiven() {
      return isGiven;
    },
    sign: (domain, ...values) => signedWith(all[0] as Buffer, signedText(owner, domain, values)).toString("base64url"),
    isSignature(signature, domain, ...values) {
      const shown = Buffer.from(signature, "base64url");
      if (shown.length !== SIGNATURE_BYTES || shown.toString("base64url") !== signature) return false;
      const text = signedText(owner, domain, values);
      return all.some((key) => timingSafeEqual(signedWith(key, text), shown));
    },
  });

  return {
    async open(given) {
      if (given.length === 0) {
        await fetchKey();
        return;
      }
      isGiven = true;
      all = given.map((text) => createHmac("sha256", "gateway session key").update(text).digest());
    },
    of: forOwner,
    close: () => retrying?.cancel(),
  };
}

/**
 * A JSON array keeps the values unambiguous. The signed texts of the standalone configuration must not change, because
 * sessions outlive versions: those of sign-ins are separated by spaces, which their values do not contain.
 */
function signedText({ prefix }: Owner, domain: SignatureDomain, values: SignedValues): string {
  const parts = [domain, ...values];
  const text = values.length === 0 || domain === "sign-in" ? parts.join(" ") : JSON.stringify(parts);
  return `${prefix}${text}`;
}

const withoutKey: SigningKey = { sign: () => "", isSignature: () => false, isGiven: false };

export const noSigningKey: ProcessSigningKey = { of: () => withoutKey };
