/**
 * A principal is a string that identifies the authenticated client. Outputs omit the digits after a NUL, which only
 * make the string unique.
 */
import { createHash } from "node:crypto";
import { clientNetwork } from "../http/host.ts";
import type { Claims, RequestAttributes } from "./request-attributes.ts";

const MAX_PERSON_CHARS = 200;

export interface IdentifiedBy {
  readonly jwt?: object | undefined;
  readonly apiKey?: object | undefined;
  readonly basicAuth?: object | undefined;
}

/** Returns a short display name, or undefined for an unauthenticated client. */
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

/** Returns the subject that logs, request records, and reports show, or null for an unauthenticated client. */
export function requestSubject({ jwt, apiKey, basicAuth }: RequestAttributes): string | null {
  const { sub, azp, client_id, appid } = jwt ?? NOTHING;
  const { user_id, name } = apiKey ?? NOTHING;
  return (
    stringOrUndefined(sub) ??
    stringOrUndefined(azp) ??
    stringOrUndefined(client_id) ??
    stringOrUndefined(appid) ??
    stringOrUndefined(user_id) ??
    stringOrUndefined(name) ??
    basicAuth?.username ??
    null
  );
}

const NOTHING: Readonly<Record<string, unknown>> = {};

export function stringOrUndefined(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Returns a description that distinguishes users with the same name. */
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

/**
 * Tokens of the same issuer and subject have the same principal. Without both claims, only an identical token has it.
 */
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
 * Identifies a client for per-client limits by its principal or address. IPv6 addresses count as one /64 network,
 * because a client can use any of its 2^64 addresses.
 */
export function clientKey(principal: string | undefined, address: string): string {
  if (principal !== undefined) return principal;
  return `address:${clientNetwork(address)}`;
}

export function shownPrincipal(principal: string): string {
  return principal.replace(/\0[0-9a-f]*/g, "");
}

/** Keeps the first digits of the digest visible, to distinguish principals. */
function hidden(kind: string, secret: string | Buffer): string {
  const digits = sha256(secret);
  return `${kind}${digits.slice(0, 8)}\0${digits.slice(8)}`;
}

function sha256(data: string | Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}
