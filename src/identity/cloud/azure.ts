/**
 * Obtains Microsoft Entra ID access tokens with a client secret, a federated workload token, or a managed identity.
 * Settings that are not configured come from the environment variables of the Azure SDKs.
 */
import { readFileSync } from "node:fs";
import { newForm } from "../../base/form.ts";
import { exchangeForm, readToken, type TokenSource, type TokenSourceOptions } from "./token-request.ts";

const AUTHORITY = "https://login.microsoftonline.com";
export const AZURE_AI_RESOURCE = "https://cognitiveservices.azure.com";
const MACHINE = "http://169.254.169.254/metadata/identity/oauth2/token";
const TOKEN_SERVER = "Microsoft Entra ID";
const ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

export interface EntraSettings {
  readonly tenantId?: string | undefined;
  readonly clientId?: string | undefined;
  readonly clientSecret?: string | undefined;
  /** The API that the token is for. Default: Azure AI services. */
  readonly resource?: string | undefined;
}

/** Throws if `clientSecret` is configured but the tenant ID or the client ID is unknown. */
export function entraTokenSource(
  settings: EntraSettings,
  environment: Readonly<Record<string, string | undefined>>,
  options: TokenSourceOptions,
): TokenSource {
  const resource = (settings.resource ?? AZURE_AI_RESOURCE).replace(/\/+$/, "");
  const tenantId = settings.tenantId ?? environment.AZURE_TENANT_ID;
  const clientId = settings.clientId ?? environment.AZURE_CLIENT_ID;
  const secret = settings.clientSecret ?? environment.AZURE_CLIENT_SECRET;
  const tokenFile = environment.AZURE_FEDERATED_TOKEN_FILE;
  if (settings.clientSecret !== undefined && (tenantId === undefined || clientId === undefined))
    throw new Error("`azure.clientSecret` needs `tenantId` and `clientId`");
  if (tenantId !== undefined && clientId !== undefined) {
    const url = `${authorityUrl(environment.AZURE_AUTHORITY_HOST)}/${encodeURIComponent(tenantId)}/oauth2/v2.0/token`;
    const form = { grant_type: "client_credentials", client_id: clientId, scope: `${resource}/.default` };
    if (secret) return () => exchangeForm(options, TOKEN_SERVER, url, { ...form, client_secret: secret });
    if (tokenFile) {
      return async () => {
        // Kubernetes rotates the token file, so it is read for each token request.
        const assertion = readFileSync(tokenFile, "utf8").trim();
        const proof = { client_assertion_type: ASSERTION_TYPE, client_assertion: assertion };
        return exchangeForm(options, TOKEN_SERVER, url, { ...form, ...proof });
      };
    }
  }
  return managedIdentity(resource, clientId, environment, options);
}

function managedIdentity(
  resource: string,
  clientId: string | undefined,
  environment: Readonly<Record<string, string | undefined>>,
  options: TokenSourceOptions,
): TokenSource {
  const { IDENTITY_ENDPOINT: endpoint, IDENTITY_HEADER: header } = environment;
  const isService = Boolean(endpoint) && Boolean(header);
  const query = newForm({
    resource,
    "api-version": isService ? "2019-08-01" : "2018-02-01",
    ...(clientId === undefined ? {} : { client_id: clientId }),
  });
  const host = environment.AZURE_POD_IDENTITY_AUTHORITY_HOST;
  const machine = host ? `${host.replace(/\/+$/, "")}/metadata/identity/oauth2/token` : MACHINE;
  return () =>
    readToken(options, "the managed identity's endpoint", {
      url: `${isService ? endpoint : machine}?${query}`,
      headers: isService ? { "x-identity-header": header ?? "" } : { metadata: "true" },
    });
}

function authorityUrl(host: string | undefined): string {
  return (host || AUTHORITY).replace(/\/+$/, "");
}
