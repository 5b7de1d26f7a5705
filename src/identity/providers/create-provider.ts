/**
 * Returns the adapter of the configured provider, or the standard adapter (plain.ts).
 */
import { idpRealm } from "./idp-realm.ts";
import { idpTenant } from "./idp-tenant.ts";
import { plain } from "./plain.ts";
import type { IdentityProvider, ProviderOptions } from "./provider.ts";

export interface ProviderChoice extends ProviderOptions {
  readonly provider?: { readonly idp_realm?: object | undefined; readonly idp_tenant?: object | undefined } | undefined;
}

export function createProvider({ provider, ...options }: ProviderChoice): IdentityProvider {
  if (provider?.idp_realm) return idpRealm(options);
  if (provider?.idp_tenant) return idpTenant(options);
  return plain(options);
}
