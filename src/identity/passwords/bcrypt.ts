/**
 * bcrypt, the hash of `htpasswd -B`: deliberately slow, and node has none. It gives the loop back every millisecond,
 * so that other requests do not wait for somebody's password.
 */
import { P_WORDS, S_WORDS } from "./blowfish-tables.ts";

const FORM = /^\$2[aby]\$(\d\d)\$([./A-Za-z0-9]{22})([./A-Za-z0-9]{31})$/;
const ALPHABET = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/** Four seconds of computing; higher costs are a mistake in a file that is read per request. */
export const MAX_COST = 14;
/** The algorithm reads no more of a password. */
const MAX_PASSWORD_BYTES = 72;
const SALT_BYTES = 16;
const HASH_BYTES = 23;
const ROUNDS_PER_TURN = 8;
const TEXT = "OrpheanBeholderScryDoubt";

export interface BcryptHash {
  readonly cost: number;
  readonly salt: Buffer;
  readonly hash: Buffer;
}

/** Undefined when the text is no bcrypt hash. */
export function parseBcrypt(text: string): BcryptHash | undefined {
  const parts = FORM.exec(text);
  if (!parts) return undefined;
  const [, cost = "", salt = "", hash = ""] = parts;
  return { cost: Number(cost), salt: decode(salt).subarray(0, SALT_BYTES), hash: decode(hash).subarray(0, HASH_BYTES) };
}

/** `yieldLoop` is awaited between short stretches of work. */
export async function computeBcrypt(
  password: string,
  { cost, salt }: BcryptHash,
  words: Uint32Array,
  yieldLoop: () => Promise<void>,
): Promise<Buffer> {
  const state = new Blowfish(words);
  const key = cyclicWords(Buffer.concat([Buffer.from(password).subarray(0, MAX_PASSWORD_BYTES), Buffer.from([0])]));
  const saltWords = cyclicWords(salt);
  state.expand(key, saltWords);
  for (let round = 0; round < 2 ** cost; round++) {
    state.expand(key);
    state.expand(saltWords);
    if (round % ROUNDS_PER_TURN === ROUNDS_PER_TURN - 1) await yieldLoop();
  }
  const text = Buffer.from(TEXT, "latin1");
  const block = Array.from({ length: text.length / 4 }, (_, index) => text.readUInt32BE(index * 4));
  for (let i = 0; i < block.length; i += 2) {
    let left = block[i] as number;
    let right = block[i + 1] as number;
    for (let n = 0; n < 64; n++) [left, right] = state.encrypt(left, right);
    text.writeUInt32BE(left, i * 4);
    text.writeUInt32BE(right, i * 4 + 4);
  }
  return text.subarray(0, HASH_BYTES);
}

class Blowfish {
  readonly #p: Uint32Array;
  readonly #s: Uint32Array;

  constructor(words: Uint32Array) {
    this.#p = words.slice(0, P_WORDS);
    this.#s = words.slice(P_WORDS, P_WORDS + S_WORDS);
  }

  encrypt(leftIn: number, rightIn: number): [number, number] {
    const p = this.#p;
    const s = this.#s;
    let left = leftIn;
    let right = rightIn;
    for (let round = 0; round < 16; round += 2) {
      left ^= p[round] as number;
      right ^= mix(s, left);
      right ^= p[round + 1] as number;
      left ^= mix(s, right);
    }
    return [(right ^ (p[17] as number)) >>> 0, (left ^ (p[16] as number)) >>> 0];
  }

  /** Without salt: the plain key schedule. */
  expand(key: Uint32Array, salt?: Uint32Array): void {
    const p = this.#p;
    for (let i = 0; i < P_WORDS; i++) p[i] = (p[i] as number) ^ (key[i % key.length] as number);
    let left = 0;
    let right = 0;
    let at = 0;
    for (const table of [p, this.#s]) {
      for (let i = 0; i < table.length; i += 2) {
        if (salt) {
          left ^= salt[at % salt.length] as number;
          right ^= salt[(at + 1) % salt.length] as number;
          at += 2;
        }
        [left, right] = this.encrypt(left, right);
        table[i] = left;
        table[i + 1] = right;
      }
    }
  }
}

function mix(s: Uint32Array, x: number): number {
  const sum = ((s[x >>> 24] as number) + (s[256 + ((x >>> 16) & 255)] as number)) | 0;
  return ((sum ^ (s[512 + ((x >>> 8) & 255)] as number)) + (s[768 + (x & 255)] as number)) | 0;
}

/** The bytes repeated as words until both wrap at the same place: 18 words of a key, 4 of a salt. */
function cyclicWords(bytes: Buffer): Uint32Array {
  const length = bytes.length % 4 === 0 ? bytes.length / 4 : P_WORDS;
  return Uint32Array.from({ length }, (_, word) => {
    let value = 0;
    for (let i = 0; i < 4; i++) value = (value << 8) | (bytes[(word * 4 + i) % bytes.length] as number);
    return value;
  });
}

function decode(text: string): Buffer {
  const bytes: number[] = [];
  let buffer = 0;
  let bits = 0;
  for (const char of text) {
    buffer = (buffer << 6) | ALPHABET.indexOf(char);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push((buffer >> bits) & 255);
  }
  return Buffer.from(bytes);
}
