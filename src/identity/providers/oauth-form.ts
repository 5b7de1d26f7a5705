/**
 * Parses form-encoded OAuth parameters and keeps the original text of each, so that unchanged parameters are
 * forwarded byte for byte.
 */
import { OAuthRequestError } from "./provider.ts";

export interface FormPair {
  readonly name: string;
  readonly value: string;
  readonly raw: string;
}

export function parseForm(text: string): FormPair[] {
  const pairs: FormPair[] = [];
  for (const raw of text.split("&")) {
    if (raw === "") continue;
    // URLSearchParams decodes leniently, as providers do. The leading `&` keeps it from stripping a question mark.
    const [entry] = new URLSearchParams(`&${raw}`);
    pairs.push({ name: entry?.[0] ?? "", value: entry?.[1] ?? "", raw });
  }
  return pairs;
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
