/**
 * Changes a case a little without knowing what it means: bytes and texts are cut, repeated, flipped and crossed with
 * another case, numbers become extreme, lists lose and double elements. The names of an object stay: they are the form
 * of the target's cases.
 */
import type { Random } from "../support/random.ts";
import type { Case } from "./target.ts";

const NUMBERS = [0, 1, -1, 2, 127, 255, 256, 65_535, 65_536, 2 ** 31, 2 ** 32, 2 ** 53, 1e21, 0.5, -0.5, 1e-7];
const TEXTS = [
  "\r\n", "\n", "\r", "\0", " ", "\t", '"', "\\", "\\u0000", "\\ud800", "{", "}", "[", "]", ":", ",", "null", "1e999", "-0",
  "%", "%2e", "%2F", "%00", "..", "/", "//", "?", "#", "&", "=", ";", "\u00a0", "\u0085", "\ufeff", "\u2028", "é", "😀", "\ud800",
  "__proto__", "constructor", "0", "9".repeat(20), "${A}", "true", "<", "'", "--- ", "- ", "*a", "&a",
]; // biome-ignore format: a table

export function mutate(input: Case, other: Case, random: Random): Case {
  let changed = input;
  for (let left = 1 + random.int(3); left > 0; left--) changed = mutateOnce(changed, other, random);
  return changed;
}

function mutateOnce(input: Case, other: Case, random: Random): Case {
  if (typeof input === "string") return mutateText(input, typeof other === "string" ? other : "", random);
  if (Buffer.isBuffer(input)) {
    const donor = Buffer.isBuffer(other) ? other : Buffer.alloc(0);
    return random.oneIn(3)
      ? flipByte(input, random)
      : Buffer.from(mutateText(input.toString("latin1"), donor.toString("latin1"), random), "latin1");
  }
  if (typeof input === "number") return random.oneIn(3) ? random.pick(NUMBERS) : input + random.int(5) - 2;
  if (typeof input === "boolean") return !input;
  if (input === null) return null;
  if (Array.isArray(input)) return mutateList(input as readonly Case[], other, random);
  const object = input as { readonly [name: string]: Case };
  const names = Object.keys(object);
  if (names.length === 0) return object;
  const name = random.pick(names);
  const donor = isObject(other) ? (other[name] ?? null) : null;
  return { ...object, [name]: mutateOnce(object[name] as Case, donor, random) };
}

function mutateList(list: readonly Case[], other: Case, random: Random): Case {
  const changed = [...list];
  const at = random.int(changed.length);
  const donor = Array.isArray(other) ? (random.pick(other as readonly Case[]) ?? null) : null;
  switch (random.int(5)) {
    case 0:
      changed.splice(at, 1);
      break;
    case 1:
      if (changed.length > 0) changed.splice(at, 0, changed[at] as Case);
      break;
    case 2:
      if (donor !== null) changed.splice(at, 0, donor);
      break;
    default:
      if (changed.length > 0) changed[at] = mutateOnce(changed[at] as Case, donor, random);
  }
  return changed;
}

function mutateText(text: string, other: string, random: Random): string {
  const at = random.int(text.length + 1);
  const size = random.oneIn(4) ? random.int(text.length + 1) : random.int(5);
  switch (random.int(7)) {
    case 0:
      return text.slice(0, at) + text.slice(at + size);
    case 1:
      return text.slice(0, at) + text.slice(at, at + size) + text.slice(at);
    case 2: {
      const from = random.int(other.length + 1);
      return text.slice(0, at) + other.slice(from, from + random.int(40)) + text.slice(at + size);
    }
    case 3: {
      const to = random.int(text.length + 1);
      return text.slice(0, to) + text.slice(at, at + size) + text.slice(to);
    }
    case 4:
      return text.slice(0, at) + String.fromCharCode(random.int(256)) + text.slice(at + random.int(2));
    default:
      return text.slice(0, at) + random.pick(TEXTS) + text.slice(at + random.int(3));
  }
}

function flipByte(bytes: Buffer, random: Random): Buffer {
  if (bytes.length === 0) return bytes;
  const changed = Buffer.from(bytes);
  const at = random.int(changed.length);
  changed[at] = random.oneIn(2) ? (changed[at] as number) ^ (1 << random.int(8)) : random.int(256);
  return changed;
}

export function isObject(value: Case): value is { readonly [name: string]: Case } {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !Buffer.isBuffer(value);
}
