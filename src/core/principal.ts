/**
 * Who an authentication policy let in, as one text. Sessions and server processes belong to it, so two users never
 * have the same: issuer and subject where a token has both, else the token itself; the key, not what its entry says
 * of its user; the user together with the entry that the password was checked against, since two files may each
 * have an "alice". What stands behind a NUL distinguishes and is not shown.
 */
import { createHash } from "node:crypto";
import type { Claims } from "./facts.ts";

/** A refreshed token of the same subject is the same principal; without a subject, only the same token is. */
export function tokenPrincipal({ iss, sub }: Claims, token: string): string {
  if (typeof iss === "string" && typeof sub === "string" && sub !== "") return `jwt:${JSON.stringify([iss, sub])}`;
  return hidden("token:", token);
}

/** `digest` is the key's. */
export function keyPrincipal(digest: Buffer): string {
  return hidden("key:", digest);
}

/** `entry` is the user's line of the file. */
export function userPrincipal(username: string, entry: string): string {
  return `basic:${JSON.stringify(username)}\0${sha256(entry)}`;
}

/**
 * The client that shares of limits are counted by: the principal, or else the address. A site of IPv6 has 2^64
 * addresses, so that its network (/64) counts.
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

/** For logs and the admin interface. */
export function shownPrincipal(principal: string): string {
  return principal.replace(/\0[0-9a-f]*/g, "");
}

/** Some digits are shown, so that one can be told from another. */
function hidden(kind: string, secret: string | Buffer): string {
  const digits = sha256(secret);
  return `${kind}${digits.slice(0, 8)}\0${digits.slice(8)}`;
}

function sha256(data: string | Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}
