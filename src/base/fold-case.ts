/**
 * Keys as decoders that ignore case compare them (Go's encoding/json, .NET, Jackson by setting). Both directions are needed,
 * because some letters meet only in one of them: U+017F and s, U+212A and k.
 */
export function foldCase(key: string): string {
  return key.toUpperCase().toLowerCase();
}
