/**
 * HalfSipHash-1-3 of a string's UTF-16 code units: keys of limits come from clients, who must not be able to choose them
 * so that all meet in one place of a table. The two numbers are random for each table.
 */
export function keyHash(key: string, seed0: number, seed1: number): number {
  let v0 = seed0;
  let v1 = seed1;
  let v2 = seed0 ^ 0x6c796765;
  let v3 = seed1 ^ 0x74656462;
  const { length } = key;
  const last = length + (length & 1);
  for (let i = 0; i <= last; i += 2) {
    // The length stands at the end, in a word of its own.
    const word = i === last ? length : key.charCodeAt(i) | ((i + 1 < length ? key.charCodeAt(i + 1) : 0) << 16);
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    v0 ^= word;
  }
  v2 ^= 0xff;
  for (let round = 0; round < 3; round++) {
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
  }
  return (v1 ^ v3) >>> 0;
}
