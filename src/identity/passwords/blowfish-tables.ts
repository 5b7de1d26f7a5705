/**
 * The starting state of the Blowfish cipher: the hexadecimal digits of the fraction of pi, in words of 32 bits. They
 * are computed instead of written down: ten lines that can be checked against the definition, not a thousand numbers.
 */

export const P_WORDS = 18;
export const S_WORDS = 4 * 256;
/** Rounding errors of the series stay in these bits. */
const GUARD_BITS = 64n;

/** P-array and S-boxes in one array; about 20 ms, done once and only if a bcrypt hash is configured. */
export function blowfishWords(): Uint32Array {
  const bits = BigInt((P_WORDS + S_WORDS) * 32);
  const one = 1n << (bits + GUARD_BITS);
  // Machin's formula: pi = 16 arctan(1/5) - 4 arctan(1/239).
  const pi = 16n * arctanOfInverse(5n, one) - 4n * arctanOfInverse(239n, one);
  const fraction = (pi - 3n * one) >> GUARD_BITS;
  const hex = fraction.toString(16).padStart(Number(bits / 4n), "0");
  return Uint32Array.from({ length: P_WORDS + S_WORDS }, (_, index) =>
    Number.parseInt(hex.slice(index * 8, index * 8 + 8), 16),
  );
}

function arctanOfInverse(x: bigint, one: bigint): bigint {
  const square = x * x;
  let power = one / x;
  let sum = power;
  for (let n = 3n, sign = -1n; power > 0n; n += 2n, sign = -sign) {
    power /= square;
    sum += (sign * power) / n;
  }
  return sum;
}
