/**
 * Defines the options and step results of a login check, and checks the gateway's own document.
 */
import type { Clock } from "../../base/clock.ts";
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import type { Fetch, FetchResponse } from "../../http/fetch.ts";
import { readJson } from "../../json/read-json.ts";
import type { selectKeySource } from "../keys/key-source.ts";
import type { ProviderChoice } from "../providers/create-provider.ts";
import { errorDetail } from "../providers/provider.ts";
import { type ProviderFault, providerFault } from "../providers/provider-faults.ts";
import { resourceMetadataUrl } from "./well-known.ts";

const RESOURCE_METADATA = peerInput("gateway/resource-metadata");

export interface LoginPolicy extends ProviderChoice {
  readonly audiences: readonly string[];
  readonly jwks?: Parameters<typeof selectKeySource>[0];
  readonly resourceMetadata: {
    readonly resource: string;
    readonly authorizationServers?: readonly string[] | undefined;
    readonly scopesSupported?: readonly string[] | undefined;
  };
}

export interface LoginCheckOptions {
  readonly policy: LoginPolicy;
  readonly fetch: Fetch;
  readonly clock: Clock;
  readFile(path: string): string;
  readonly gateway?: { readonly hasCors: boolean } | undefined;
  readonly token?: string | undefined;
}

export const LEG_LIMITS = { timeoutMs: 10_000, input: RESOURCE_METADATA };

export interface LoginLeg {
  readonly leg:
    | ("metadata" | "clock" | "keys" | "pkce" | "registration" | "authorize" | "token endpoint" | "token")
    | ("resource" | "cors");
  /** The value is undefined if the step was not checked. */
  readonly ok: boolean | undefined;
  readonly message: string;
  readonly hint?: string;
}

export function failed(leg: LoginLeg["leg"], message: string, hint?: string): LoginLeg {
  return { leg, ok: false, message, ...(hint === undefined ? {} : { hint }) };
}

export function notChecked(leg: LoginLeg["leg"], why: string): LoginLeg {
  return { leg, ok: undefined, message: `not checked: ${why}` };
}

export function textOf(response: FetchResponse): string {
  return response.body.toString("utf8").replace(/\s+/g, " ").slice(0, 300);
}

export function rejectedLeg(leg: LoginLeg["leg"], response: FetchResponse): LoginLeg {
  const text = `${textOf(response)} ${response.headers.get("location") ?? ""}`.trim();
  const fault: ProviderFault | undefined = providerFault(text);
  return failed(leg, `status ${response.status}: ${fault?.cause ?? text}`, fault?.hint);
}

export async function* gatewayLegs(options: LoginCheckOptions, hasCors: boolean): AsyncGenerator<LoginLeg> {
  yield await resourceLeg(options);
  yield hasCors
    ? { leg: "cors", ok: true, message: "the route has a `cors` policy" }
    : {
        leg: "cors",
        ok: undefined,
        message: "the route has no `cors` policy: clients that run in a browser cannot connect",
        hint: "add `cors` with their origins to the route, if there are any",
      };
}

async function resourceLeg({ policy, fetch }: LoginCheckOptions): Promise<LoginLeg> {
  const { resource } = policy.resourceMetadata;
  const url = resourceMetadataUrl(resource);
  const hint = "set `resource` to the address that clients use for this gateway";
  try {
    const response = await fetch({ url, ...LEG_LIMITS });
    if (response.status !== 200)
      return failed("resource", `${url} returned status ${response.status}: ${textOf(response)}`, hint);
    const document = readJson(RESOURCE_METADATA, response.body) as { readonly resource?: unknown } | null;
    if (document?.resource !== resource)
      return failed("resource", `${url} speaks of ${String(document?.resource)}, expected ${resource}`, hint);
    return { leg: "resource", ok: true, message: `${url} is the gateway's document` };
  } catch (error) {
    if (error instanceof InputError) return failed("resource", `${url} ${error.message}`, hint);
    return notChecked("resource", `no gateway answers at ${url} (${errorDetail(error)}); start it there`);
  }
}
