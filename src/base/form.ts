/**
 * Reads queries and form bodies within the limits of an input's entry, and writes them. Only this file uses the parser
 * of the platform.
 */
import { InputError, type PeerInput } from "./peer-inputs.ts";

/** The fields of a query or of a form, in order. Names may repeat. */
export type Form = URLSearchParams;

/** Decodes leniently, as most servers do. Throws an InputError if the text exceeds a limit. */
export function readForm(input: PeerInput<"form">, text: string): Form {
  if (text.length > input.maxBytes) throw InputError.tooLarge(input);
  if (hasMoreFields(text, input.maxItems)) throw InputError.tooManyItems(input);
  return new URLSearchParams(text);
}

export interface FormPair {
  readonly name: string;
  readonly value: string;
  /** The field as it was sent. */
  readonly raw: string;
}

/** Works like `readForm`, but keeps the original text of each field. Empty fields are omitted. */
export function readFormPairs(input: PeerInput<"form">, text: string): FormPair[] {
  if (text.length > input.maxBytes) throw InputError.tooLarge(input);
  if (hasMoreFields(text, input.maxItems)) throw InputError.tooManyItems(input);
  const pairs: FormPair[] = [];
  for (const raw of text.split("&")) {
    if (raw === "") continue;
    // The leading `&` keeps the parser from removing a question mark.
    const [field] = new URLSearchParams(`&${raw}`);
    pairs.push({ name: field?.[0] ?? "", value: field?.[1] ?? "", raw });
  }
  return pairs;
}

export function newForm(fields: Readonly<Record<string, string>> | readonly (readonly [string, string])[] = []): Form {
  return new URLSearchParams(fields as Record<string, string> | [string, string][]);
}

/** Adds fields to the query of a URL that the gateway sends. `set` replaces the fields with the same names. */
export function addToQuery(url: URL, how: "append" | "set", fields: readonly (readonly [string, string])[]): void {
  for (const [name, value] of fields) url.searchParams[how](name, value);
}

function hasMoreFields(text: string, most: number): boolean {
  if (text.length < most) return false;
  let fields = 1;
  for (let at = text.indexOf("&"); at >= 0 && fields <= most; at = text.indexOf("&", at + 1)) fields += 1;
  return fields > most;
}
