/**
 * Checks the passwords of users in an htpasswd file with bcrypt, Apache MD5 (`$apr1$`), or `{SHA}` hashes.
 * `PasswordChecks` computes the hashes, and correct passwords are cached as keyed digests.
 */
import { createHmac, randomBytes } from "node:crypto";
import { LRUCache } from "lru-cache";
import { readLines } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { PasswordChecks, PasswordHash } from "./password-checks.ts";

const FILE = peerInput("file/htpasswd");

const MAX_CACHED_PASSWORDS = 10_000;
/** Longer passwords are rejected, because the cost of a check grows with the length. */
const MAX_PASSWORD_BYTES = 1_024;
const BCRYPT = /^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$/;
const MAX_COST = 14;
const MIN_COST = 4;
const APR1 = /^\$apr1\$([./A-Za-z0-9]{1,8})\$([./A-Za-z0-9]{22})$/;
const SHA1 = /^\{SHA\}([A-Za-z0-9+/]{27}=)$/;

interface User {
  readonly line: string;
  readonly hash: PasswordHash;
}

export interface Htpasswd {
  /** Returns a promise if the hash must be computed. Checks are scheduled fairly by `address`, the client's address. */
  check(user: string, password: string, address: string): boolean | Promise<boolean>;
  entryOf(user: string): string | undefined;
  users(): readonly string[];
}

export function createHtpasswd(text: string, checks: PasswordChecks): Htpasswd {
  const users = parseUsers(text);
  // For an unknown user, the hash of another user is checked, so that timing does not reveal user names.
  const [substitute] = users.values();
  if (substitute === undefined) throw new Error("htpasswd has no users");
  const secret = randomBytes(32);
  const cache = new LRUCache<string, true>({ max: MAX_CACHED_PASSWORDS });
  return {
    entryOf: (user) => users.get(user)?.line,
    users: () => [...users.keys()],
    check(user, password, address) {
      if (Buffer.byteLength(password) > MAX_PASSWORD_BYTES) return false;
      const digest = createHmac("sha256", secret).update(`${user.length}:${user}${password}`).digest("base64");
      if (cache.has(digest)) return true;
      const known = users.get(user);
      return checks.matches(address, password, (known ?? substitute).hash).then((matches) => {
        const isCorrect = known !== undefined && matches;
        if (isCorrect) cache.set(digest, true);
        return isCorrect;
      });
    },
  };
}

function parseUsers(text: string): Map<string, User> {
  const users = new Map<string, User>();
  for (const [index, raw] of readLines(FILE, text).entries()) {
    const line = raw.trim();
    if (line === "" || line.startsWith("#")) continue;
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`htpasswd line ${index + 1}: expected user:hash`);
    const user = line.slice(0, colon);
    const hash = parseHash(line.slice(colon + 1));
    if (typeof hash === "string") throw new Error(`htpasswd line ${index + 1} (${user}): ${hash}`);
    if (users.has(user)) throw new Error(`htpasswd line ${index + 1}: the user ${user} appears twice`);
    users.set(user, { line, hash });
  }
  return users;
}

function parseHash(text: string): PasswordHash | string {
  const cost = BCRYPT.exec(text)?.[1];
  if (cost !== undefined && (Number(cost) > MAX_COST || Number(cost) < MIN_COST))
    return `a bcrypt cost of ${Number(cost)} is not between ${MIN_COST} and ${MAX_COST}`;
  if (cost !== undefined) return { kind: "bcrypt", hash: text };
  const [, salt, md5] = APR1.exec(text) ?? [];
  if (salt !== undefined && md5 !== undefined) return { kind: "apr1", salt, hash: md5 };
  const sha1 = SHA1.exec(text)?.[1];
  if (sha1 !== undefined) return { kind: "sha1", hash: sha1 };
  return "the hash is not bcrypt, apr1 or SHA: create it with `htpasswd -B`";
}
