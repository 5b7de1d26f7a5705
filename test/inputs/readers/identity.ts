/** Hostile inputs of the readers of tokens, keys, logins, and credentials. */
import { readForm } from "../../../src/base/form.ts";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { containerKeys, webIdentityKeys } from "../../../src/identity/cloud/aws.ts";
import { googleKeySource, googleMetadataSource } from "../../../src/identity/cloud/google.ts";
import { readKeySet } from "../../../src/identity/keys/verification-key.ts";
import { createClientMetadata } from "../../../src/identity/login/client-metadata.ts";
import { parseRegistration } from "../../../src/identity/login/login-endpoints.ts";
import { readResponse } from "../../../src/identity/oauth/oauth-requests.ts";
import { createHtpasswd } from "../../../src/identity/passwords/htpasswd.ts";
import { fetchMetadata } from "../../../src/identity/providers/discovery.ts";
import { parseForm, requireUnique, serializeForm } from "../../../src/identity/providers/oauth-form.ts";
import { parseToken } from "../../../src/identity/tokens/token.ts";
import { readMembers } from "../../../src/json/read-json.ts";
import { discoverLogin, requestTokens } from "../../../src/mcp/logins/oauth-client.ts";
import { fakeClock } from "../../support/fake-clock.ts";
import { fetched } from "../fetched.ts";
import { type HostileInputs, hostile, many, mapShapes, together } from "../hostile.ts";
import { formShapes, jsonShapes, lineShapes } from "../shapes.ts";

const clock = fakeClock();
const base64 = (text: string): string => Buffer.from(text).toString("base64url");

const tokens = {
  ...mapShapes(
    jsonShapes((value) => `{"sub":${value}}`),
    (claims) => `${base64('{"alg":"RS256"}')}.${base64(claims)}.AAAA`,
  ),
  "one large header": (n: number) => `${base64(`{"alg":"RS256","kid":"${"k".repeat(n)}"}`)}.${base64("{}")}.AAAA`,
  "one large signature": (n: number) => `${base64('{"alg":"RS256"}')}.${base64("{}")}.${"A".repeat(n)}`,
  "many parts": (n: number) => ".".repeat(n),
  "invalid characters": (n: number) => "é".repeat(n),
};
/** Below the limit of 8 KiB, and beyond it. */
const TOKEN_BYTES = 1_500;

const token = hostile<string>({
  shapes: tokens,
  read: (text) => parseToken(text).ok,
  bytes: TOKEN_BYTES,
});

const forms = hostile<string>({
  shapes: formShapes(),
  read(text) {
    const pairs = parseForm(text);
    requireUnique(pairs);
    return serializeForm(pairs).length;
  },
});

const ISSUER = "https://issuer.example";
const key = (i: number): string =>
  `{"kty":"OKP","crv":"Ed25519","kid":"k${i}","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`;
const keySets = {
  ...jsonShapes((value) => `{"keys":${value}}`),
  "many keys": (n: number) => `{"keys":[${many(n, key, ",")}]}`,
  "equal keys": (n: number) => `{"keys":[${many(n, () => key(1), ",")}]}`,
  "one large key": (n: number) => `{"keys":[{"kty":"RSA","n":"${"A".repeat(n)}","e":"AQAB"}]}`,
};

const credentials = (value: string): string =>
  `{"AccessKeyId":"a","SecretAccessKey":"s","Token":"t","Expiration":"2030-01-01T00:00:00Z","x":${value}}`;

const tokenResponses = jsonShapes((value) => `{"access_token":"a","expires_in":60,"x":${value}}`);
const keyFile = (value: string): string => `{"type":"authorized_user","client_id":"a","x":${value}}`;

const aws = (text: string) => ({
  profile: undefined,
  region: "eu-west-1",
  variables: {
    AWS_CONTAINER_CREDENTIALS_FULL_URI: "http://127.0.0.1/",
    AWS_WEB_IDENTITY_TOKEN_FILE: "package.json",
    AWS_ROLE_ARN: "a",
  },
  clock,
  fetch: fetched(text),
});

const xml = {
  "many elements": (n: number) => `<A>${"<b>1</b>".repeat(n / 8)}</A>`,
  "equal elements": (n: number) => "<AccessKeyId>a</AccessKeyId>".repeat(n / 28),
  "never completed elements": (n: number) => "<AccessKeyId>".repeat(n / 13),
  "one large value": (n: number) => `<AccessKeyId>${"a".repeat(n)}</AccessKeyId>`,
  "one large value, never completed": (n: number) => `<AccessKeyId>${"a".repeat(n)}`,
  "deep elements": (n: number) => `${"<a>".repeat(n / 7)}${"</a>".repeat(n / 7)}`,
  "invalid at the end": (n: number) => `<A>${"<b>1</b>".repeat(n / 8)}<`,
};

const SERVER_URL = "https://mcp.example/mcp";
const metadata = jsonShapes(
  (value) =>
    `{"issuer":"https://mcp.example","authorization_endpoint":"https://mcp.example/a","token_endpoint":"https://mcp.example/t","scopes_supported":["a"],"x":${value}}`,
);

export const identityInputs = {
  "client/token": token,
  "identity-provider/id-token": token,
  "client/login-form": forms,
  "client/query": forms,
  "client/registration": hostile<Buffer>({
    shapes: mapShapes(
      {
        ...jsonShapes((value) => `{"client_name":"a","x":${value}}`),
        "many redirect URIs": (n) => `{"redirect_uris":[${many(n, (i) => `"https://a.example/${i}"`, ",")}]}`,
        "one large redirect URI": (n) => `{"redirect_uris":["https://a.example/${"a".repeat(n)}"]}`,
      },
      (text) => Buffer.from(text),
    ),
    read: (body) => parseRegistration(body).redirect_uris,
  }),
  "client/metadata-document": hostile<string>({
    shapes: {
      ...jsonShapes((value) => `{"client_id":"https://app.example/c","x":${value}}`),
      "many redirect URIs": (n) =>
        `{"client_id":"https://app.example/c","redirect_uris":[${many(n, (i) => `"https://a.example/${i}"`, ",")}]}`,
    },
    read: (text) =>
      createClientMetadata({ hosts: ["app.example"], clientId: "c", fetch: fetched(text), clock }).authorize(
        "client_id=https%3A%2F%2Fapp.example%2Fc&redirect_uri=https%3A%2F%2Fa.example%2F1",
        () => undefined,
      ),
  }),
  "identity-provider/redirect": hostile<string>({
    shapes: formShapes(),
    read: (query) => readForm(peerInput("identity-provider/redirect"), query).get("error"),
  }),
  "identity-provider/discovery": hostile<string>({
    shapes: jsonShapes((value) => `{"issuer":"${ISSUER}","jwks_uri":"${ISSUER}/keys","x":${value}}`),
    read: async (text) =>
      (await fetchMetadata({ urls: [`${ISSUER}/m`], issuer: ISSUER, fetch: fetched(text), clock })).ttlMs,
  }),
  "identity-provider/key-set": hostile<string>({
    shapes: keySets,
    read: (text) => [readKeySet(text).keys.length, readKeySet(text).skipped.length].join(),
  }),
  "file/jwks": hostile<string>({
    shapes: keySets,
    read: (text) => readKeySet(text, peerInput("file/jwks")).keys.length,
  }),
  "identity-provider/token-response": together({
    "OAuth response": hostile<string>({
      shapes: tokenResponses,
      read: (text) => Object.keys(readResponse({ status: 200, body: Buffer.from(text) }).members).length,
    }),
    "OAuth error": hostile<string>({
      shapes: jsonShapes((value) => `{"error":"a","x":${value}}`),
      read: (text) => Object.keys(readResponse({ status: 400, body: Buffer.from(text) }).members).length,
    }),
    "metadata server": hostile<string>({
      shapes: tokenResponses,
      read: async (text) => (await googleMetadataSource(undefined, { clock, fetch: fetched(text) })()).expiresAtMs,
    }),
  }),
  "identity-provider/registration": hostile<string>({
    shapes: jsonShapes((value) => `{"client_id":"a","x":${value}}`),
    read: (text) => Object.keys(readMembers(peerInput("identity-provider/registration"), text) ?? {}).length,
  }),
  "cloud-provider/credentials": hostile<string>({
    shapes: jsonShapes(credentials),
    read: async (text) => (await containerKeys(aws(text) as never)).expiresAtMs,
  }),
  "cloud-provider/xml-credentials": hostile<string>({
    shapes: xml,
    read: async (text) => (await webIdentityKeys(aws(text) as never)).expiresAtMs,
  }),
  "file/cloud-credentials": hostile<string>({
    shapes: jsonShapes(keyFile),
    read: (text) => typeof googleKeySource(text, { clock, fetch: fetched("{}") }),
  }),
  "file/htpasswd": hostile<Buffer>({
    shapes: {
      ...lineShapes((n, i) => `user${i}${"x".repeat(n)}:{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk=`),
      "one large hash": (n) => Buffer.from(`a:$2y$05$${"a".repeat(n)}\n`),
    },
    read: (bytes) => createHtpasswd(bytes.toString(), { matches: async () => false } as never).users().length,
  }),
  "mcp-server/login-metadata": hostile<string>({
    shapes: metadata,
    read: async (text) => (await discoverLogin(SERVER_URL, {}, fetched(text))).server.scopes.length,
  }),
  "mcp-server/login-token": hostile<string>({
    shapes: tokenResponses,
    read: async (text) =>
      (await requestTokens("https://mcp.example/t", { clientId: "a" } as never, { grant_type: "x" }, fetched(text), 0))
        .expiresAtMs,
  }),
} satisfies HostileInputs;
