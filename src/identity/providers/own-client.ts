/**
 * Lets all MCP clients share the operator's client at the provider. The gateway returns its ID for registrations and
 * adds its secret to token requests without a secret, but only for this client ID and the two grants of a login.
 */
import { type FormPair, newForm } from "../../base/form.ts";
import { parseForm, serializeForm } from "./oauth-form.ts";
import type { ClientRegistration } from "./provider.ts";

const GRANTS_WITH_SECRET = new Set(["authorization_code", "refresh_token"]);

/** Echoes only known registration fields, so that the gateway does not confirm arbitrary values. */
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
  // A parameter without a value counts as absent (RFC 6749 section 3.2).
  const parameter = (name: string): string | undefined =>
    pairs.find((pair) => pair.name === name && pair.value !== "")?.value;
  // A client that authenticates itself keeps its credentials, because a second secret would conflict.
  const authenticatesItself =
    hasAuthorizationHeader || parameter("client_secret") !== undefined || parameter("client_assertion") !== undefined;
  const isOurClient = parameter("client_id") === client.clientId;
  const mayCarrySecret = GRANTS_WITH_SECRET.has(parameter("grant_type") ?? "");
  if (!client.clientSecret || authenticatesItself || !isOurClient || !mayCarrySecret) return serializeForm(pairs);
  const others = pairs.filter(({ name }) => name !== "client_secret");
  return serializeForm([...others, ...parseForm(newForm({ client_secret: client.clientSecret }).toString())]);
}

function present(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
