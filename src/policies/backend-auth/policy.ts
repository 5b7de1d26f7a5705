/**
 * `backendAuth`: authenticates the gateway to a backend, with its own key, with a token that a server issues, or by
 * forwarding the client's verified credential.
 */
import { z } from "zod";
import { ConfigError } from "../../core/config-error.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { type CompileEnv, definePolicy, type Hooks, sending } from "../../core/policy.ts";
import { changeableHeaderName, exactlyOneOf, filePath, httpUrl, secret } from "../../core/schema.ts";
import { isSameHeader } from "../../http/header-rules.ts";
import { isHeaderValue } from "../../http/headers.ts";
import { createAwsSigner } from "../../identity/cloud/aws.ts";
import { AZURE_AI_RESOURCE } from "../../identity/cloud/azure.ts";
import {
  awsKeys,
  awsSignatureAuth,
  azureAuth,
  entraToken,
  googleAuth,
  googleToken,
  SIGNATURE_HEADERS,
} from "../../identity/cloud/cloud-credentials.ts";
import { CredentialError, type Renewable } from "../../identity/cloud/renewable.ts";
import type { KeptTokens } from "../../identity/oauth/kept-tokens.ts";
import { jwtSignSchema, signedJwts } from "./jwt-sign.ts";
import {
  clientKeys,
  crossAppAccessSchema,
  crossAppTokens,
  oauthSchema,
  oauthTokens,
  type TokenEnv,
  TokenRefused,
} from "./oauth-tokens.ts";

/** AWS signs the hash of the body, so the gateway buffers it. */
const MAX_SIGNED_BODY_BYTES = 8 * 1024 * 1024;
const KIND = "backendAuth";
const AREA = "policies";

const keyFile = z.strictObject({ file: filePath().describe("A file that contains only the key.") });

type AwsConfig = z.output<typeof awsSignatureAuth>;

export const backendAuth = definePolicy({
  kind: KIND,
  doc: "Sends the gateway's own key or a token for the backend, or forwards the client's credential.",
  scopes: ["route", "backend"],
  protection: () => "none",
  schema: exactlyOneOf(
    z.strictObject({
      passthrough: z
        .strictObject({})
        .optional()
        .describe("Forwards the credential that an authentication policy read."),
      key: z
        .union([secret(), keyFile])
        .optional()
        .describe("The key, usually from an environment variable, or `{file}`."),
      oauth: oauthSchema
        .optional()
        .describe(
          "Sends a token that an authorization server issues, in exchange for the client's token or for the gateway itself.",
        ),
      crossAppAccess: crossAppAccessSchema
        .optional()
        .describe(
          "Sends a token of the backend's authorization server, which the gateway gets with an identity assertion of the user's identity provider.",
        ),
      jwtSign: jwtSignSchema
        .optional()
        .describe("Sends a JWT that the gateway signs with its own private key, a new one every second."),
      aws: awsSignatureAuth.optional(),
      google: googleAuth.optional(),
      azure: azureAuth({
        resource: httpUrl()
          .default(AZURE_AI_RESOURCE)
          .describe("The API that the token is for. Default: https://cognitiveservices.azure.com."),
      }).optional(),
      header: z
        .strictObject({
          name: changeableHeaderName().describe("The header for the key."),
          prefix: z.string().optional().describe("The prefix of the key."),
        })
        .optional()
        .describe("With `key` and `jwtSign`: the header. Default: `authorization: Bearer`."),
    }),
    ["passthrough", "key", "oauth", "crossAppAccess", "jwtSign", "aws", "google", "azure"],
  ),

  compile(config, env) {
    const { key, header, oauth, crossAppAccess, jwtSign, aws, google, azure } = config;
    const owner = { name: env.scopeName, area: AREA };
    if (aws !== undefined) return signRequests(aws, env);
    if (google !== undefined) return sendCloudToken(googleToken(google, owner, env), env);
    if (azure !== undefined) return sendCloudToken(entraToken(azure, owner, env), env);
    if (oauth !== undefined) {
      const definition = [oauth, clientKeys([oauth], env)];
      return sendToken(definition, (tokenEnv) => oauthTokens(oauth, tokenEnv), env);
    }
    if (crossAppAccess !== undefined) {
      const { identityProvider, resourceServer } = crossAppAccess;
      const definition = [crossAppAccess, clientKeys([identityProvider, resourceServer], env)];
      return sendToken(definition, (tokenEnv) => crossAppTokens(crossAppAccess, tokenEnv), env);
    }
    const name = header?.name ?? "authorization";
    const prefix = header ? (header.prefix ?? "") : "Bearer ";
    if (jwtSign !== undefined) return sendSignedJwt(signedJwts(jwtSign, env), name, prefix);
    if (key === undefined) return { shape: { head: forwardCredential } };
    const value = prefix + (typeof key === "string" ? key : env.readFile(key.file).trim());
    if (value === prefix) throw new ConfigError(undefined, "key", "the key is empty");
    if (!isHeaderValue(value))
      throw new ConfigError(undefined, "key", "the key has characters that are not allowed in a header");
    return {
      clients: { credentials: { headers: [name] } },
      shape: {
        head(exchange) {
          send(exchange, name, value);
          return undefined;
        },
      },
    };
  },
});

function forwardCredential(exchange: Exchange): undefined {
  if (exchange.credentials.presented)
    send(exchange, exchange.credentials.presented.header, exchange.credentials.presented.value);
  return undefined;
}

/** The tokens survive a reload that does not change the policy or its keys. */
function sendToken(definition: unknown, open: (env: TokenEnv) => KeptTokens, env: CompileEnv): Hooks {
  const tokens = env.acquire(`backendAuth tokens ${env.scopeName}`, definition, () => open(env));
  const logger = env.logger.for("policies");
  return {
    clients: { credentials: { headers: ["authorization"] } },
    shape: sending(env, KIND, {
      head(exchange) {
        const subject = tokens.isShared ? "" : subjectToken(exchange);
        if (subject === undefined)
          throw new GatewayError("authentication_failed", {
            message: "a bearer token is required\n",
            detail: "there is no bearer token to exchange",
            headers: { "www-authenticate": "Bearer" },
          });
        return tokens.get(subject).then(
          (token) => {
            send(exchange, "authorization", `Bearer ${token}`);
            return undefined;
          },
          (error: Error) => {
            logger.warn("cannot get a token for the backend", { owner: env.scopeName, reason: error.message });
            throw tokenError(error);
          },
        );
      },
    }),
  };
}

function sendSignedJwt(jwtFor: (exchange: Exchange) => Promise<string>, name: string, prefix: string): Hooks {
  return {
    clients: { credentials: { headers: [name] } },
    shape: {
      head: (exchange) =>
        jwtFor(exchange).then((token) => {
          send(exchange, name, prefix + token);
          return undefined;
        }),
    },
  };
}

/** The backend signs the request when it is in its final form, after all policies. */
function signRequests(config: AwsConfig, env: CompileEnv): Hooks {
  const { region, service } = config;
  const keys = awsKeys(config, { name: env.scopeName, area: AREA }, region, env);
  const sign = createAwsSigner(keys, { region, service }, env.clock);
  return {
    clients: { credentials: { headers: SIGNATURE_HEADERS } },
    shape: sending(env, KIND, {
      replaces: SIGNATURE_HEADERS,
      bodyBytes: () => MAX_SIGNED_BODY_BYTES,
      head(exchange) {
        for (const name of SIGNATURE_HEADERS) exchange.request.headers.delete(name);
        exchange.request.sign = (request) =>
          sign(request).catch((error: Error) => {
            throw credentialError(error);
          });
        return undefined;
      },
    }),
    response: {
      head({ response }) {
        if (response !== undefined) sign.correctClock(response.status, response.headers);
        return undefined;
      },
    },
  };
}

function sendCloudToken(token: Renewable<string>, env: CompileEnv): Hooks {
  return {
    clients: { credentials: { headers: ["authorization"] } },
    shape: sending(env, KIND, {
      head: (exchange) =>
        Promise.resolve(token.get()).then(
          (value) => {
            send(exchange, "authorization", `Bearer ${value}`);
            return undefined;
          },
          (error: Error) => {
            throw credentialError(error);
          },
        ),
    }),
  };
}

function credentialError(error: Error): GatewayError {
  return new GatewayError("not_ready", {
    message: "the credential for the backend is not available now",
    detail: error.message,
    headers: { "retry-after": String(error instanceof CredentialError ? error.retryAfterSeconds : 1) },
    cause: error,
  });
}

/** Without an authentication policy, the authorization server decides about the token that the client sent. */
function subjectToken({ credentials, request }: Exchange): string | undefined {
  const value = credentials.presented?.value ?? request.headers.get("authorization");
  return /^bearer +([\x21-\x7e]+)$/i.exec(value ?? "")?.[1];
}

function tokenError(error: Error): GatewayError {
  if (error instanceof TokenRefused)
    return new GatewayError("authentication_failed", {
      message: "the token was not accepted for this backend\n",
      detail: error.message,
      headers: { "www-authenticate": 'Bearer error="invalid_token"' },
      cause: error,
    });
  return new GatewayError("not_ready", {
    message: "the token for the backend is not available now",
    detail: error.message,
    headers: { "retry-after": "1" },
    cause: error,
  });
}

function send(exchange: Exchange, name: string, value: string): void {
  exchange.request.headers.set(name, value);
  // On a route, the header is sent to every backend, so it is no longer withheld. On a backend, the list must not
  // change, because a retry may go to a backend that must not receive the credential.
  if (exchange.attributes.backend === undefined && exchange.credentials.headers) {
    exchange.credentials.headers = exchange.credentials.headers.filter((withheld) => !isSameHeader(withheld, name));
  }
}
