/**
 * Parses form-encoded OAuth parameters and keeps the original text of each, so that unchanged parameters are
 * forwarded byte for byte.
 */
import { type FormPair, readFormPairs } from "../../base/form.ts";
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { OAuthRequestError } from "./provider.ts";

const PARAMETERS = peerInput("client/login-form");

export function parseForm(text: string): FormPair[] {
  try {
    return readFormPairs(PARAMETERS, text);
  } catch (error) {
    if (error instanceof InputError) throw new OAuthRequestError("invalid_request", `the form ${error.message}`);
    throw error;
  }
}

export function serializeForm(pairs: readonly FormPair[]): string {
  return pairs.map((pair) => pair.raw).join("&");
}

/**
 * Throws an OAuthRequestError if a parameter occurs twice, ignoring case, because some providers ignore the case of
 * names.
 */
export function requireUnique(pairs: readonly FormPair[]): void {
  const seen = new Set<string>();
  for (const { name } of pairs) {
    const key = name.toLowerCase();
    if (seen.has(key)) throw new OAuthRequestError("invalid_request", `the parameter ${key.slice(0, 40)} is repeated`);
    seen.add(key);
  }
}
