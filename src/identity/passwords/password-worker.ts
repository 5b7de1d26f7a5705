/**
 * Runs in a worker thread and compares passwords with their hashes. It sends one response per message.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { parentPort } from "node:worker_threads";
import { compareSync } from "bcryptjs";
import type { CheckRequest, CheckResult, PasswordHash } from "./password-checks.ts";

parentPort?.on("message", ({ id, password, hash }: CheckRequest) => {
  parentPort?.postMessage({ id, matches: matches(password, hash) } satisfies CheckResult);
});

function matches(password: string, hash: PasswordHash): boolean {
  switch (hash.kind) {
    case "bcrypt":
      return compareSync(password, hash.hash);
    case "apr1":
      return isSame(apr1(password, hash.salt), hash.hash);
    case "sha1":
      return isSame(createHash("sha1").update(password).digest("base64"), hash.hash);
  }
}

/** Compares digests, so that the time reveals neither the length nor the content. */
function isSame(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

const APR1_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

function apr1(password: string, salt: string): string {
  const md5 = (...parts: (Buffer | string)[]): Buffer => {
    const hash = createHash("md5");
    for (const part of parts) hash.update(part);
    return hash.digest();
  };
  const secret = Buffer.from(password);
  const inner = md5(secret, salt, secret);
  const start: (Buffer | string)[] = [secret, "$apr1$", salt];
  for (let left = secret.length; left > 0; left -= 16) start.push(inner.subarray(0, Math.min(16, left)));
  for (let bits = secret.length; bits > 0; bits >>= 1) start.push(bits & 1 ? Buffer.from([0]) : secret.subarray(0, 1));
  let result = md5(...start);
  for (let round = 0; round < 1000; round++) {
    const parts: (Buffer | string)[] = [round & 1 ? secret : result];
    if (round % 3 !== 0) parts.push(salt);
    if (round % 7 !== 0) parts.push(secret);
    parts.push(round & 1 ? result : secret);
    result = md5(...parts);
  }
  const byte = (index: number): number => result[index] as number;
  const groups: [number, number][] = [
    [(byte(0) << 16) | (byte(6) << 8) | byte(12), 4],
    [(byte(1) << 16) | (byte(7) << 8) | byte(13), 4],
    [(byte(2) << 16) | (byte(8) << 8) | byte(14), 4],
    [(byte(3) << 16) | (byte(9) << 8) | byte(15), 4],
    [(byte(4) << 16) | (byte(10) << 8) | byte(5), 4],
    [byte(11), 2],
  ];
  return groups.map(([value, chars]) => encode24(value, chars)).join("");
}

function encode24(value: number, chars: number): string {
  let text = "";
  for (let i = 0; i < chars; i++) text += APR1_ALPHABET[(value >> (6 * i)) & 63];
  return text;
}
