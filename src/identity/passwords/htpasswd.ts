/**
 * Users and passwords of an htpasswd file: bcrypt, Apache's MD5 (`$apr1$`) and `{SHA}`. Checking is slow by design, so
 * one check runs at a time, a bounded number may wait, and a password that was right is remembered (as a keyed digest)
 * for as long as the file is.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { LRUCache } from "lru-cache";
import { GatewayError } from "../../core/errors.ts";
import type { Clock } from "../../lib/process/clock.ts";
import { bcryptProblem, createBcrypt } from "./bcrypt.ts";

const MAX_REMEMBERED = 10_000;
const MAX_WAITING = 100;
const APR1 = /^\$apr1\$([./A-Za-z0-9]{1,8})\$([./A-Za-z0-9]{22})$/;
const SHA1 = /^\{SHA\}([A-Za-z0-9+/]{27}=)$/;

type PasswordHash = { readonly line: string } & ParsedHash;

type ParsedHash =
  | { readonly kind: "bcrypt"; readonly hash: string }
  | { readonly kind: "apr1"; readonly salt: string; readonly hash: string }
  | { readonly kind: "sha1"; readonly hash: string };

export interface Htpasswd {
  /** At once if the password was right before. */
  check(user: string, password: string): boolean | Promise<boolean>;
  /** The user's line. */
  entryOf(user: string): string | undefined;
}

/** Throws an Error that names the line. */
export function createHtpasswd(text: string, clock: Clock): Htpasswd {
  const users = parseUsers(text);
  const bcrypt = createBcrypt(clock);
  const secret = randomBytes(32);
  const remembered = new LRUCache<string, true>({ max: MAX_REMEMBERED });
  let waiting = 0;
  let last: Promise<unknown> = Promise.resolve();

  async function compute(user: string, password: string): Promise<boolean> {
    const hash = users.get(user);
    // An unknown user costs as much as a known one, so that names cannot be found out by time.
    const measured = hash ?? ([...users.values()][0] as PasswordHash);
    const matches = await matchesHash(password, measured);
    return hash !== undefined && matches;
  }

  async function matchesHash(password: string, hash: ParsedHash): Promise<boolean> {
    switch (hash.kind) {
      case "bcrypt":
        return bcrypt.matches(password, hash.hash);
      case "apr1":
        return isSame(apr1(password, hash.salt), hash.hash);
      case "sha1":
        return isSame(createHash("sha1").update(password).digest("base64"), hash.hash);
    }
  }

  return {
    entryOf: (user) => users.get(user)?.line,
    check(user, password) {
      const digest = createHmac("sha256", secret).update(`${user.length}:${user}${password}`).digest("base64");
      if (remembered.has(digest)) return true;
      if (waiting >= MAX_WAITING) {
        const detail = `${MAX_WAITING} password checks are waiting`;
        throw new GatewayError("overloaded", { detail, headers: { "retry-after": "1" } });
      }
      waiting += 1;
      const checked = last
        .then(() => compute(user, password))
        .then((right) => {
          if (right) remembered.set(digest, true);
          return right;
        })
        .finally(() => {
          waiting -= 1;
        });
      last = checked.catch(() => undefined);
      return checked;
    },
  };
}

function parseUsers(text: string): Map<string, PasswordHash> {
  const users = new Map<string, PasswordHash>();
  for (const [index, raw] of text.split(/\r?\n/).entries()) {
    const line = raw.trim();
    if (line === "" || line.startsWith("#")) continue;
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`htpasswd line ${index + 1}: expected user:hash`);
    const user = line.slice(0, colon);
    const hash = parseHash(line.slice(colon + 1));
    if (typeof hash === "string") throw new Error(`htpasswd line ${index + 1} (${user}): ${hash}`);
    if (users.has(user)) throw new Error(`htpasswd line ${index + 1}: the user ${user} appears twice`);
    users.set(user, { line, ...hash });
  }
  if (users.size === 0) throw new Error("htpasswd has no users");
  return users;
}

function parseHash(text: string): ParsedHash | string {
  const problem = bcryptProblem(text);
  if (problem !== undefined) return problem === "none" ? { kind: "bcrypt", hash: text } : problem;
  const [, salt, md5] = APR1.exec(text) ?? [];
  if (salt !== undefined && md5 !== undefined) return { kind: "apr1", salt, hash: md5 };
  const sha1 = SHA1.exec(text)?.[1];
  if (sha1 !== undefined) return { kind: "sha1", hash: sha1 };
  return "the hash is not bcrypt, apr1 or SHA: create it with `htpasswd -B`";
}

/** Hashes of both, so that neither length nor content shows in the time. */
function isSame(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

const APR1_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** Apache's variant of the MD5 password hash: a thousand rounds that mix password, salt and the last result. */
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
