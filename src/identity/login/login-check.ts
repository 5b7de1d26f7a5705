/**
 * Implements `gwctl auth check`, which performs the steps of a login against the real provider without a user, and
 * reports for each step whether it works.
 */

import type { Fetch } from "../../http/fetch.ts";
import { createKeyTable, keysFor, requireKeys } from "../keys/key-set.ts";
import { type KeySource, selectKeySource } from "../keys/key-source.ts";
import { type ReadKeys, readKeySet, readKeySetObject, verifySignature } from "../keys/verification-key.ts";
import { createProvider } from "../providers/create-provider.ts";
import { fetchMetadata } from "../providers/discovery.ts";
import { type Discovered, errorDetail, type IdentityProvider } from "../providers/provider.ts";
import { providerFault } from "../providers/provider-faults.ts";
import { claimProblem, LEEWAY_SECONDS } from "../tokens/claims.ts";
import { parseToken, type TokenProblem } from "../tokens/token.ts";
import {
  failed,
  gatewayLegs,
  LEG_LIMITS,
  type LoginCheckOptions,
  type LoginLeg,
  notChecked,
  textOf,
} from "./login-leg.ts";
import { ownClientLegs, registrationLegs } from "./trial-login.ts";

const EXPIRED_HINT = "log in again for a new token, and compare the clocks of this host and the provider";

export async function* checkLogin(options: LoginCheckOptions): AsyncGenerator<LoginLeg> {
  const { policy } = options;
  const provider = createProvider(policy);
  let discovered: Discovered | undefined;
  let date: string | undefined;
  const fetch: Fetch = async (request) => {
    const response = await options.fetch(request);
    date = response.headers.get("date");
    return response;
  };
  try {
    const found = await fetchMetadata({
      ...options,
      fetch,
      urls: provider.discoveryUrls,
      issuer: provider.discoveredIssuer,
    });
    discovered = found.document;
    yield tenantIssuerLeg(policy.issuer, provider) ?? {
      leg: "metadata",
      ok: true,
      message: `${found.url} has the issuer ${provider.discoveredIssuer}`,
    };
    yield* clockLeg(date, options.clock.now());
  } catch (error) {
    yield failed("metadata", errorDetail(error), metadataHint(provider, errorDetail(error)));
  }

  let keys: ReadKeys | undefined;
  try {
    const source = selectKeySource(policy.jwks, provider);
    if (source.kind === "discovered" && !discovered) {
      yield notChecked("keys", "the metadata with their address could not be read");
    } else {
      const { read, from } = await readKeys(options, source, discovered);
      keys = requireKeys(read);
      const skipped = keys.skipped.length === 0 ? "" : `; skipped: ${keys.skipped.join("; ")}`;
      yield { leg: "keys", ok: true, message: `${keys.keys.length} usable at ${from}${skipped}` };
    }
  } catch (error) {
    yield failed("keys", errorDetail(error), "compare `issuer` with the provider's own address, or set `jwks`");
  }

  if (discovered) {
    yield pkceLeg(provider, discovered);
    if (provider.register) yield* ownClientLegs(options, provider, discovered);
    else yield* registrationLegs(options, provider, discovered);
  }
  yield tokenLeg(options, provider, keys);
  if (options.gateway) yield* gatewayLegs(options, options.gateway.hasCors);
}

/** A tenant's tokens have one of two exact issuers, although metadata also exists for other spellings. */
function tenantIssuerLeg(issuer: string, provider: IdentityProvider): LoginLeg | undefined {
  if (provider.name !== "idp_tenant" || issuer === provider.discoveredIssuer) return undefined;
  const { pathname } = new URL(issuer);
  if (/^\/[^/]+\/$/.test(pathname)) return undefined;
  const v1 = `${new URL(issuer).origin}/${pathname.split("/")[1]}/`;
  return failed(
    "metadata",
    `no token of the tenant has the issuer ${issuer}`,
    `set \`issuer\` to ${provider.discoveredIssuer} (v2 tokens) or ${v1} (v1 tokens), with exactly these slashes`,
  );
}

function* clockLeg(date: string | undefined, nowMs: number): Generator<LoginLeg> {
  const aheadSeconds = date === undefined ? Number.NaN : Math.round((Date.parse(date) - nowMs) / 1000);
  if (!(Math.abs(aheadSeconds) > LEEWAY_SECONDS)) return;
  const how = aheadSeconds > 0 ? "ahead of" : "behind";
  yield failed(
    "clock",
    `the provider's clock is ${Math.abs(aheadSeconds)} s ${how} this host's; ${LEEWAY_SECONDS} s are tolerated`,
    "synchronize both clocks (NTP)",
  );
}

async function readKeys(
  options: LoginCheckOptions,
  source: KeySource,
  discovered: Discovered | undefined,
): Promise<{ read: ReadKeys; from: string }> {
  if (source.kind === "file") return { read: readKeySet(options.readFile(source.path)), from: source.path };
  if (source.kind === "inline") {
    const { value } = source;
    return { read: typeof value === "string" ? readKeySet(value) : readKeySetObject(value), from: "`jwks`" };
  }
  const url = source.kind === "url" ? source.url : discovered?.jwks_uri;
  if (typeof url !== "string") throw new Error("the metadata has no jwks_uri");
  const response = await options.fetch({ url, ...LEG_LIMITS });
  if (response.status !== 200) throw new Error(`${url} returned status ${response.status}: ${textOf(response)}`);
  return { read: readKeySet(response.body.toString("utf8")), from: url };
}

function pkceLeg(provider: IdentityProvider, discovered: Discovered): LoginLeg {
  const methods = discovered.code_challenge_methods_supported;
  // The tenant provider supports S256 but does not advertise it. The gateway advertises it instead.
  if (provider.name === "idp_tenant" || (Array.isArray(methods) && methods.includes("S256")))
    return { leg: "pkce", ok: true, message: "S256 is supported" };
  return failed(
    "pkce",
    "the metadata does not include the code challenge method S256",
    "MCP clients need it: enable PKCE with S256 at the provider",
  );
}

function tokenLeg(
  { policy, token, clock }: LoginCheckOptions,
  provider: IdentityProvider,
  keys: ReadKeys | undefined,
): LoginLeg {
  if (token === undefined) {
    return notChecked("token", "use --token-file to check issuer and audience of an access token");
  }
  const parsed = parseToken(token);
  if (!parsed.ok) return problemLeg(parsed.problem, provider);
  const { claims } = parsed.value;
  const problem = claimProblem(claims, policy, clock.now());
  if (problem) return problemLeg(problem, provider, claims);
  if (!keys) return notChecked("token", "issuer, audience and times fit, but there are no keys for the signature");
  const found = keysFor(parsed.value, createKeyTable(keys.keys));
  if (!Array.isArray(found)) return problemLeg(found as TokenProblem, provider, claims);
  const isSigned = found.some((key) => verifySignature(parsed.value, key));
  if (!isSigned)
    return failed(
      "token",
      "the signature does not match a key of the provider",
      "the token is from another provider or realm",
    );
  return { leg: "token", ok: true, message: `issuer, audience, times and signature fit; sub is ${String(claims.sub)}` };
}

function problemLeg(
  problem: TokenProblem,
  provider: IdentityProvider,
  claims?: Parameters<IdentityProvider["hint"]>[1],
): LoginLeg {
  const hint = provider.hint(problem, claims);
  return failed("token", problem.detail, hint ?? (problem.check === "expiry" ? EXPIRED_HINT : undefined));
}

function metadataHint(provider: IdentityProvider, detail: string): string | undefined {
  if (/has the issuer/.test(detail)) return "set `issuer` to the exact issuer of the provider";
  if (/ECONNREFUSED|ENOTFOUND|EAI_AGAIN|no response within/.test(detail))
    return "check that the provider is running and that this host can reach it";
  if (/status 404/.test(detail))
    return provider.name === "idp_tenant"
      ? "check the tenant id in `issuer`"
      : "check the realm's name and path in `issuer`";
  return providerFault(detail)?.hint;
}
