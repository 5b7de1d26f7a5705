/**
 * A provider's seal on a thought, which it wants back in later turns. Clients of other dialects carry it in their own
 * member for such things, with the provider's name before it, so that it never goes to another provider.
 */

export type Signer = "anthropic" | "google";

export interface Signature {
  readonly signer: Signer;
  readonly value: string;
}

/** `native`: whose dialect the client speaks; its own signatures stand there as they are. */
export function writeSignature(signature: Signature, native: Signer | undefined): string {
  return signature.signer === native ? signature.value : `${signature.signer}:${signature.value}`;
}

export function readSignature(text: unknown, native: Signer | undefined): Signature | undefined {
  if (typeof text !== "string" || text === "") return undefined;
  for (const signer of ["anthropic", "google"] as const)
    if (text.startsWith(`${signer}:`)) return { signer, value: text.slice(signer.length + 1) };
  return native && { signer: native, value: text };
}
