/**
 * Form-encoded OAuth parameters whose bytes are kept: what the gateway does not change reaches the provider exactly
 * as the client wrote it (state, redirect_uri, code_verifier), in the same order.
 */
import { OAuthRequestError } from "./provider.ts";

export interface FormPair {
  /** Decoded: for decisions. */
  readonly name: string;
  readonly value: string;
  /** As sent. */
  readonly raw: string;
}

export function parseForm(text: string): FormPair[] {
  const pairs: FormPair[] = [];
  for (const raw of text.split("&")) {
    if (raw === "") continue;
    // One pair at a time: its only entry is the decoded name and value, leniently as providers decode them.
    // The `&` keeps a question mark at its front, which the platform would take for the beginning of a query.
    const [entry] = new URLSearchParams(`&${raw}`);
    pairs.push({ name: entry?.[0] ?? "", value: entry?.[1] ?? "", raw });
  }
  return pairs;
}

export function serialiseForm(pairs: readonly FormPair[]): string {
  return pairs.map((pair) => pair.raw).join("&");
}

/** Throws a 400 when a parameter stands twice, also in another case: some providers ignore the case of names. */
export function requireUnique(pairs: readonly FormPair[]): void {
  const seen = new Set<string>();
  for (const { name } of pairs) {
    const key = name.toLowerCase();
    if (seen.has(key)) throw new OAuthRequestError("invalid_request", `the parameter ${key.slice(0, 40)} is repeated`);
    seen.add(key);
  }
}
