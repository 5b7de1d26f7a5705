/**
 * The principal: a string that identifies the authenticated client. Sessions and server processes belong to it, so two
 * users never share one. It is the issuer and subject of a token, or the token itself without them; the API key, not its
 * metadata; or the user name with the htpasswd entry, because two files may each have an "alice". The part after a NUL
 * only makes the string unique and is never shown.
 */
import { createHash } from "node:crypto";
import type { Claims } from "./facts.ts";

const MAX_PERSON_CHARS = 200;

/** The attributes of an exchange that identify a user. */
export interface IdentifiedBy {
  readonly jwt?: object | undefined;
  readonly apiKey?: object | undefined;
  readonly basicAuth?: object | undefined;
}

/** Returns a short display name; undefined for an unauthenticated client. */
export function personName(
  { jwt, apiKey, basicAuth }: IdentifiedBy,
  principal: string | undefined,
): string | undefined {
  return (
    firstText(jwt, ["name", "preferred_username", "email", "sub"]) ??
    firstText(basicAuth, ["username"]) ??
    firstText(apiKey, ["name", "user", "email", "user_id", "id"]) ??
    (principal === undefined ? undefined : shownPrincipal(principal))
  );
}

/**
 * Returns a description that distinguishes users of the same name: the name, the account, and the issuer. Users can often
 * choose the `name` of an account, but neither its issuer nor its subject.
 */
export function personDescription(identified: IdentifiedBy, principal: string): string {
  const { jwt } = identified;
  const shown = shownPrincipal(principal);
  const name = personName(identified, principal) ?? shown;
  if (jwt !== undefined) {
    const account = firstText(jwt, ["email", "preferred_username", "sub"]);
    const issuer = firstText(jwt, ["iss"]);
    return (
      [...new Set([name, account])].filter((text) => text !== undefined).join(", ") + (issuer ? ` at ${issuer}` : "")
    );
  }
  const key = /^key:([0-9a-f]+)$/.exec(shown)?.[1];
  if (key !== undefined) return name === shown ? `the API key ${key}` : `${name} (API key ${key})`;
  return name;
}

function firstText(source: object | undefined, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = source !== undefined && Object.hasOwn(source, name) && (source as Record<string, unknown>)[name];
    const text = typeof value === "string" ? cleaned(value) : "";
    if (text !== "") return text;
  }
  return undefined;
}

/** Removes control and formatting characters, which could reorder a line or make two names look the same. */
function cleaned(text: string): string {
  const short = text.slice(0, MAX_PERSON_CHARS);
  return short.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, "").trim();
}

/** A refreshed token of the same subject is the same principal; without a subject, only the same token is. */
export function tokenPrincipal({ iss, sub }: Claims, token: string): string {
  if (typeof iss === "string" && typeof sub === "string" && sub !== "") return `jwt:${JSON.stringify([iss, sub])}`;
  return hidden("token:", token);
}

/** `digest` is the SHA-256 of the key. */
export function keyPrincipal(digest: Buffer): string {
  return hidden("key:", digest);
}

/** `entry` is the user's line in the htpasswd file. */
export function userPrincipal(username: string, entry: string): string {
  return `basic:${JSON.stringify(username)}\0${sha256(entry)}`;
}

/**
 * Identifies a client for per-client limits: the principal, or else the address. An IPv6 site has 2^64 addresses, so its
 * /64 network is used.
 */
export function clientKey(principal: string | undefined, address: string): string {
  if (principal !== undefined) return principal;
  return `address:${address.includes(":") ? networkOf(address) : address}`;
}

function networkOf(address: string): string {
  const [left = "", right = ""] = address.split("%", 1)[0]?.split("::") ?? [];
  const before = left === "" ? [] : left.split(":");
  const after = right === "" ? [] : right.split(":");
  const zeros = address.includes("::") ? Math.max(0, 8 - before.length - after.length) : 0;
  return `${[...before, ...Array<string>(zeros).fill("0"), ...after].slice(0, 4).join(":")}::/64`;
}

/** The principal without its secret part, for logs and the admin interface. */
export function shownPrincipal(principal: string): string {
  return principal.replace(/\0[0-9a-f]*/g, "");
}

/** Shows the first digits of the digest, to distinguish principals. */
function hidden(kind: string, secret: string | Buffer): string {
  const digits = sha256(secret);
  return `${kind}${digits.slice(0, 8)}\0${digits.slice(8)}`;
}

function sha256(data: string | Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}
