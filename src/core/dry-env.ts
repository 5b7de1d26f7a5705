/**
 * What the environment of a dry run gives to policies. A dry run sends no requests, and can name an identity in place of
 * credentials.
 */
import type { Exchange } from "./exchange.ts";
import type { Claims } from "./request-attributes.ts";

/** A dry run treats given claims as verified and does not check the signature of a given token. */
export type GivenToken = { readonly claims: Claims } | { readonly token: string };

/** Describes an identity without its token or key, for example that of a recorded request. */
export interface RecordedIdentity {
  readonly claims?: Claims | undefined;
  readonly principals: readonly string[];
  /** Replaces the lookup in the store. */
  readonly storedKey?: StoredKeyIdentity | undefined;
}

export interface StoredKeyIdentity {
  /** The digest is the SHA-256 of the key. */
  readonly digest: Uint8Array;
  /** Undefined if the key has no namespace. */
  readonly namespace?: string | undefined;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly expiresAtMs?: number | undefined;
  readonly models?: readonly string[] | undefined;
}

export interface DryEnv {
  given(exchange: Exchange): GivenToken | undefined;
  recorded(exchange: Exchange): RecordedIdentity | undefined;
  /** Notes that the policy would have sent a request. */
  skipped(exchange: Exchange, kind: string): undefined;
}
