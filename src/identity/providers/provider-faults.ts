/**
 * Lists common errors of identity providers with their causes and fixes, for the log and the login check.
 */

export interface ProviderFault {
  readonly pattern: RegExp;
  readonly cause: string;
  readonly hint: string;
  /** True if the gateway's or the provider's settings are the cause, whatever the client sends. */
  readonly isSetup?: true;
}

export const PROVIDER_FAULTS: readonly ProviderFault[] = [
  {
    pattern: /self.signed certificate|unable to (?:verify|get)|SELF_SIGNED|UNABLE_TO_(?:VERIFY|GET)/i,
    cause: "the provider's certificate is from an unknown authority",
    hint: "set NODE_EXTRA_CA_CERTS to the file with your authority's certificate, for the gateway and for gwctl",
  },
  {
    pattern: /certificate has expired|CERT_HAS_EXPIRED/i,
    cause: "the provider's certificate has expired",
    hint: "renew the provider's certificate, or check the clock of this host",
  },
  {
    pattern: /does not match certificate|ERR_TLS_CERT_ALTNAME/i,
    cause: "the provider's certificate is for another host name",
    hint: "use the host name of the certificate in `issuer`",
  },
  {
    pattern: /responds without TLS|wrong version number|packet length too long|EPROTO|ERR_SSL/i,
    cause: "the provider does not speak TLS at this address",
    hint: "use http:// and the right port in `issuer`, or enable TLS at the provider",
  },
  {
    pattern: /HTTPS required/i,
    cause: "the realm requires TLS and the request is not local",
    hint: "serve the realm over https, or set its `Require SSL` to `none` for development",
  },
  {
    pattern: /Account is not fully set up/i,
    cause: "the user lacks required profile fields",
    hint: "give the user an email address, a first and a last name, and remove pending required actions",
  },
  {
    pattern: /Policy 'Trusted Hosts' rejected/i,
    cause: "the realm's trusted-hosts policy blocks the registration",
    hint: "in the realm's anonymous client registration policies, list the hosts of the redirect URIs under Trusted Hosts, disable `Host Sending Client Registration Request Must Match` and keep `Client URIs Must Match` enabled",
  },
  {
    pattern: /Policy 'Allowed Client Scopes' rejected|Not permitted to use specified clientScope/i,
    cause: "the client requests scopes that the realm's registration policy does not allow",
    hint: "add the scopes of `scopesSupported` to the realm's Allowed Client Scopes policy, or make them default client scopes",
  },
  {
    pattern: /Policy 'Max Clients Limit' rejected/i,
    cause: "the realm's limit for registered clients is reached",
    hint: "delete unused clients, or raise the limit in the realm's registration policies",
  },
  {
    pattern: /Standard token exchange is not enabled/i,
    cause: "the gateway's client may not exchange tokens",
    hint: "turn on `Standard token exchange` in the settings of the realm's client",
    isSetup: true,
  },
  {
    pattern: /'subject_token' supports access tokens only/i,
    cause: "the realm exchanges only access tokens",
    hint: "set `subjectTokenType: access_token`",
    isSetup: true,
  },
  {
    pattern: /Client is not within the token audience/i,
    cause: "the client's token is not for the gateway",
    hint: "add an audience mapper with the gateway's client to the client that requested the token",
  },
  {
    pattern: /"Audience not found"/i,
    cause: "the realm has no client with this audience",
    hint: "set `audiences` to client IDs of the realm",
    isSetup: true,
  },
  {
    pattern: /Requested audience not available/i,
    cause: "the realm does not issue tokens with this audience to the gateway for this user",
    hint: "add an audience mapper with the backend's client to the gateway's client, or give the user a role of the backend's client",
  },
  {
    pattern: /AADSTS9010010/,
    cause: "the `resource` parameter reached the tenant provider together with v2 scopes",
    hint: "let clients log in through the gateway's authorization server, which strips it: do not override `authorizationServers`",
  },
  {
    pattern: /AADSTS9002327/,
    cause: "the redirect URI is registered on the single-page-application platform",
    hint: "register it under `Mobile and desktop applications` (public) or `Web` (with `clientSecret`) instead",
  },
  {
    pattern: /AADSTS7000218/,
    cause: "the app registration is confidential and no client authentication was sent",
    hint: "set `clientSecret`, or allow public client flows in the app registration",
  },
  {
    pattern: /AADSTS7000215/,
    cause: "`clientSecret` is not the value of a valid secret of the app registration",
    hint: "copy the secret's value (not its id) and check that it has not expired",
  },
  {
    pattern: /AADSTS50011/,
    cause: "the client's redirect URI is not registered",
    hint: "add the client's redirect URI to the app registration",
  },
  {
    pattern: /AADSTS700016/,
    cause: "`clientId` is not an app registration of this tenant",
    hint: "compare `clientId` and the tenant id in `issuer` with the app registration's overview page",
  },
];

export function providerFault(text: string): ProviderFault | undefined {
  return PROVIDER_FAULTS.find((fault) => fault.pattern.test(text));
}

/** Returns only an error code, because descriptions may quote client input. */
export function errorMember(text: string): string | undefined {
  const word = /"error"\s*:\s*"([a-z_]{1,60})"/.exec(text)?.[1];
  return word ?? /\bAADSTS\d{4,9}\b/.exec(text)?.[0];
}
