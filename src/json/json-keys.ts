/**
 * Which keys of a JSON object are wanted, and how a key is read: with its escapes decoded, and where asked for in
 * any case, because the server that gets the bytes may read it so.
 */

import { foldCase } from "../base/fold-case.ts";

const BACKSLASH = 92;
/** The first byte of U+017F, which is a small s to those who ignore case. */
const LONG_S_LEAD = 0xc5;
/** Some key that nobody asked for. */
export const OTHER_KEY = "";

/** Which values are wanted; made once and shared by all scans. */
export interface JsonKeys {
  readonly wanted: ReadonlySet<string>;
  readonly parents: ReadonlySet<string>;
  /** By byte: whether a key that begins so may be one of them. */
  readonly mayBegin: Uint8Array;
  /** Keys by their form without case, where a key in another case is to be found too. */
  readonly withoutCase?: ReadonlyMap<string, string>;
}

/** Keys of the outermost object, or `parent.key` one level below. */
export function jsonKeys(...keys: readonly string[]): JsonKeys {
  const nested = keys.filter((key) => key.includes("."));
  const parents = new Set(nested.map((key) => key.slice(0, key.indexOf("."))));
  const mayBegin = new Uint8Array(256);
  for (const key of keys.flatMap((one) => one.split("."))) mayBegin[key.charCodeAt(0)] = 1;
  // Escapes may stand for any letter.
  mayBegin[BACKSLASH] = 1;
  return { wanted: new Set(keys), parents, mayBegin };
}

/** The same, also in another case: some decoders do not look at it. */
export function jsonKeysOfAnyCase(...keys: readonly string[]): JsonKeys {
  const { wanted, parents, mayBegin } = jsonKeys(...keys);
  const names = keys.flatMap((key) => key.split("."));
  for (const name of names) mayBegin[name.toUpperCase().charCodeAt(0)] = 1;
  mayBegin[LONG_S_LEAD] = 1;
  return { wanted, parents, mayBegin, withoutCase: new Map(names.map((name) => [foldCase(name), name])) };
}

/** A key may be written with escapes (`"m\u006fdel"`): the parser behind us reads it as the plain word, so we do too. */
export function decodeKey(text: string): string {
  if (!text.includes("\\")) return text;
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    return text;
  }
}
