/**
 * Requests an access token from a token server.
 */

import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch } from "../../http/fetch.ts";
import {
  accessToken,
  errorSuffix,
  lifetimeMs,
  type OauthResponse,
  readResponse,
  requestToken,
} from "../oauth/oauth-requests.ts";
import type { Lease } from "./renewable.ts";

const TIMEOUT_MS = 5_000;
const CREDENTIALS = peerInput("cloud-provider/credentials");

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
  const endpoint = { url, fetch: options.fetch, timeoutMs: TIMEOUT_MS, input: CREDENTIALS };
  return leasedToken(options.clock, server, requestToken(endpoint, {}, Object.entries(form)));
}

/** Reads a token from a metadata service. */
export function readToken(
  { fetch, clock }: TokenSourceOptions,
  server: string,
  request: { readonly url: string; readonly headers: Readonly<Record<string, string>> },
): Promise<Lease<string>> {
  return leasedToken(
    clock,
    server,
    fetch({ ...request, timeoutMs: TIMEOUT_MS, input: CREDENTIALS }).then(readResponse),
  );
}

async function leasedToken(clock: Clock, server: string, response: Promise<OauthResponse>): Promise<Lease<string>> {
  const { status, members } = await response.catch((error: Error) => {
    throw new Error(`${server} cannot be reached: ${error.message}`);
  });
  if (status !== 200) throw new Error(`${server} answered with status ${status}${errorSuffix(members)}`);
  const token = accessToken(members);
  const forMs = lifetimeMs(members);
  if (token === undefined || forMs === undefined)
    throw new Error(`${server} answered without access_token and expires_in`);
  return { value: token, expiresAtMs: clock.now() + forMs };
}
