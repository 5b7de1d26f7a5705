/**
 * A client that the operator made at the provider, for all MCP clients: the gateway answers registrations with its id and
 * adds its secret to token requests that have none. Only requests of this very client and of the two grants of a login
 * get the secret.
 */
import { type FormPair, parseForm, serialiseForm } from "./oauth-form.ts";
import type { ClientRegistration } from "./provider.ts";

/** Only these grants act for the operator's own client and may carry its secret. */
const GRANTS_WITH_SECRET = new Set(["authorization_code", "refresh_token"]);

/** Only the fields of a registration are echoed: anything else a client sends is not ours to vouch for. */
export function registeredAs(
  clientId: string,
  { client_name, redirect_uris, grant_types, response_types }: ClientRegistration,
): Record<string, unknown> {
  return {
    client_id: clientId,
    token_endpoint_auth_method: "none",
    ...present({ client_name, redirect_uris, grant_types, response_types }),
  };
}

export function withSecret(
  pairs: readonly FormPair[],
  client: { readonly clientId: string; readonly clientSecret?: string | undefined },
  hasAuthorizationHeader: boolean,
): string {
  // What is sent without a value counts as left out (RFC 6749 section 3.2).
  const parameter = (name: string): string | undefined =>
    pairs.find((pair) => pair.name === name && pair.value !== "")?.value;
  // A client that authenticates by itself keeps its own credentials: ours would be a second, conflicting pair.
  const authenticatesItself =
    hasAuthorizationHeader || parameter("client_secret") !== undefined || parameter("client_assertion") !== undefined;
  const isOurClient = parameter("client_id") === client.clientId;
  const mayCarrySecret = GRANTS_WITH_SECRET.has(parameter("grant_type") ?? "");
  if (!client.clientSecret || authenticatesItself || !isOurClient || !mayCarrySecret) return serialiseForm(pairs);
  const others = pairs.filter(({ name }) => name !== "client_secret");
  return serialiseForm([
    ...others,
    ...parseForm(new URLSearchParams({ client_secret: client.clientSecret }).toString()),
  ]);
}

function present(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
