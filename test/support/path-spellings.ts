/**
 * Generates other spellings of a path that are equal for RFC 3986 and for servers that merge slashes.
 */
import type { Random } from "./random.ts";

const UNRESERVED = /[A-Za-z0-9._~-]/;

/** Encodes letters at random and doubles slashes at random; `%` sequences stay and get another hex case. */
export function respelled(path: string, random: Random): string {
  return path.replace(/%[0-9A-Fa-f]{2}|[\s\S]/g, (piece) => {
    if (piece === "/") return "/".repeat(random.oneIn(4) ? 1 + random.int(3) : 1);
    if (piece.length === 3) return random.oneIn(2) ? piece.toLowerCase() : piece.toUpperCase();
    return UNRESERVED.test(piece) && random.oneIn(3) ? percentEncoded(piece, random) : piece;
  });
}

function percentEncoded(character: string, random: Random): string {
  const hex = character.charCodeAt(0).toString(16).padStart(2, "0");
  return `%${random.oneIn(2) ? hex : hex.toUpperCase()}`;
}
