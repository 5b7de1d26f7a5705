/**
 * Forms OAuth requests with oauth4webapi. Loaded at the first request (base/on-demand.ts). The library sends them with
 * the gateway's fetch; it neither follows redirects nor judges responses here, because servers differ in what they omit.
 */
import {
  type AuthorizationServer,
  allowInsecureRequests,
  type ClientAuth,
  ClientSecretPost,
  customFetch,
  dynamicClientRegistrationRequest,
  genericTokenEndpointRequest,
  None,
  revocationRequest,
} from "oauth4webapi";
import type { Form } from "../../base/form.ts";
import type { PeerInput } from "../../base/peer-inputs.ts";
import type { Fetch, FetchResponse } from "../../http/fetch.ts";

export interface OauthEndpoint {
  readonly url: string;
  readonly fetch: Fetch;
  readonly timeoutMs: number;
  readonly input: PeerInput;
}

/** Without an ID, the client does not authenticate itself. Without a secret, it sends only its ID. */
export interface ClientCredentials {
  readonly clientId?: string | undefined;
  readonly clientSecret?: string | undefined;
  /** The default is `basic`. */
  readonly method?: "basic" | "post";
  /** Signs a JWT that authenticates the client (RFC 7523 section 2.2). */
  readonly assertion?: ((clientId: string, audience: string) => Promise<string>) | undefined;
}

export function sendGrant(endpoint: OauthEndpoint, client: ClientCredentials, form: Form): Promise<FetchResponse> {
  return sent(endpoint, (options) =>
    genericTokenEndpointRequest(
      server({ token_endpoint: endpoint.url }),
      clientOf(client),
      authentication(client, endpoint.url),
      form.get("grant_type") ?? "",
      form,
      options,
    ),
  );
}

export function sendRevocation(
  endpoint: OauthEndpoint,
  client: ClientCredentials,
  token: string,
): Promise<FetchResponse> {
  return sent(endpoint, (options) =>
    revocationRequest(
      server({ revocation_endpoint: endpoint.url }),
      clientOf(client),
      authentication(client, endpoint.url),
      token,
      options,
    ),
  );
}

export function sendRegistration(
  endpoint: OauthEndpoint,
  metadata: Readonly<Record<string, string | readonly string[]>>,
): Promise<FetchResponse> {
  return sent(endpoint, (options) =>
    dynamicClientRegistrationRequest(server({ registration_endpoint: endpoint.url }), metadata as never, options),
  );
}

type RequestOptions = NonNullable<Parameters<typeof revocationRequest>[4]>;

/** Configured endpoints may use http, for example on loopback. The flows check endpoints that servers name. */
async function sent(
  { fetch, url, timeoutMs, input }: OauthEndpoint,
  send: (options: RequestOptions & { readonly [customFetch]: never }) => Promise<unknown>,
): Promise<FetchResponse> {
  const viaGateway = (_url: string, request: { readonly headers: Readonly<Record<string, string>>; body: unknown }) => {
    const { "user-agent": _agent, ...headers } = request.headers;
    // Some servers compare the type exactly, and forms need no charset (RFC 6749 appendix B).
    const type = headers["content-type"]?.split(";", 1)[0] ?? "";
    return fetch({
      url,
      method: "POST",
      headers: { accept: "application/json", ...headers, "content-type": type },
      body: Buffer.from(String(request.body)),
      timeoutMs,
      input,
    });
  };
  // The library returns what the fetch resolved with.
  return (await send({ [allowInsecureRequests]: true, [customFetch]: viaGateway as never })) as FetchResponse;
}

function server(endpoints: Partial<AuthorizationServer>): AuthorizationServer {
  // The flows check the issuer. Requests depend only on the endpoint.
  return { issuer: "https://issuer.invalid", ...endpoints };
}

/** The library requires an ID. A client without one does not authenticate itself. */
function clientOf({ clientId = "none" }: ClientCredentials): { readonly client_id: string } {
  return { client_id: clientId };
}

function authentication({ clientId, clientSecret, method, assertion }: ClientCredentials, url: string): ClientAuth {
  if (clientId === undefined) return () => undefined;
  if (assertion !== undefined)
    return async (_server, { client_id: id }, body) => {
      body.set("client_id", id);
      body.set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
      body.set("client_assertion", await assertion(id, url));
    };
  if (clientSecret === undefined) return None();
  return method === "post" ? ClientSecretPost(clientSecret) : basic(clientId, clientSecret);
}

/** Encodes like `encodeURIComponent`. The library's function also encodes `-`, which many servers do not decode. */
function basic(clientId: string, clientSecret: string): ClientAuth {
  const pair = `${encodeURIComponent(clientId)}:${encodeURIComponent(clientSecret)}`;
  return (_server, _client, _body, headers) => {
    headers.set("authorization", `Basic ${Buffer.from(pair).toString("base64")}`);
  };
}
