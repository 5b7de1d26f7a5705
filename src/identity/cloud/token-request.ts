/**
 * Requests an access token from a token server.
 */

import type { Clock } from "../../base/clock.ts";
import type { Fetch } from "../../http/fetch.ts";
import { type Members, parseMembers } from "../../json/json.ts";
import type { Lease } from "./renewable.ts";

const TIMEOUT_MS = 5_000;
const MAX_BYTES = 64 * 1024;

export interface TokenSourceOptions {
  readonly clock: Clock;
  readonly fetch: Fetch;
}

export type TokenSource = () => Promise<Lease<string>>;

export function exchangeForm(
  options: TokenSourceOptions,
  server: string,
  url: string,
  form: Readonly<Record<string, string>>,
): Promise<Lease<string>> {
  return readToken(options, server, {
    url,
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded" },
    body: Buffer.from(new URLSearchParams(form).toString()),
  });
}

export async function readToken(
  { fetch, clock }: TokenSourceOptions,
  server: string,
  request: { url: string; method?: string; headers: Readonly<Record<string, string>>; body?: Buffer },
): Promise<Lease<string>> {
  const response = await fetch({ ...request, timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES }).catch((error: Error) => {
    throw new Error(`${server} cannot be reached: ${error.message}`);
  });
  const body = parseMembers(response.body.toString("utf8")) ?? {};
  if (response.status !== 200) throw new Error(`${server} answered with status ${response.status}${errorSuffix(body)}`);
  const { access_token: token, expires_in: lifetime } = body;
  // Azure's metadata service returns the lifetime as a string.
  const seconds = typeof lifetime === "string" ? Number(lifetime) : lifetime;
  // The token becomes a header value, so only visible ASCII characters are allowed.
  if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token) || typeof seconds !== "number" || !(seconds > 0))
    throw new Error(`${server} answered without access_token and expires_in`);
  return { value: token, expiresAtMs: clock.now() + seconds * 1000 };
}

/** OAuth error codes are fixed words (RFC 6749, section 5.2). Other values might contain secrets and are omitted. */
function errorSuffix({ error }: Members): string {
  return typeof error === "string" && /^[a-z_]{1,64}$/.test(error) ? ` (${error})` : "";
}
