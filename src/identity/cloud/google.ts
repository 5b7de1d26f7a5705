/**
 * Obtains access tokens for Google Cloud from a service account key (RFC 7523), a `gcloud` refresh token, or the
 * metadata server. A key file may select another token server, but only over HTTPS or on the loopback interface.
 * Workload identity federation (`external_account`) and impersonation are not supported.
 */

import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { parseHttpUrl } from "../../http/fetch.ts";
import { hostOf, isLoopbackHost } from "../../http/host.ts";
import { readMembers } from "../../json/read-json.ts";
import { createJwtSigner, type SignJwt } from "../tokens/sign-jwt.ts";
import { exchangeForm, readToken, type TokenSource, type TokenSourceOptions } from "./token-request.ts";

const KEY_FILE = peerInput("file/cloud-credentials");

const TOKEN_SERVER = "Google's token server";
const SCOPE = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URL = "https://oauth2.googleapis.com/token";
const METADATA_HOST = "metadata.google.internal";
const METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token";
/** Google rejects assertions with a longer lifetime. */
const ASSERTION_SECONDS = 3600;

export function googleKeySource(text: string, options: TokenSourceOptions): TokenSource {
  const file = readMembers(KEY_FILE, text);
  if (file === undefined) throw new Error("the Google key file is not a JSON object");
  const member = (name: string): string => {
    const value = file[name];
    if (typeof value !== "string" || value === "") throw new Error(`the Google key file has no \`${name}\``);
    return value;
  };
  switch (file.type) {
    case "service_account": {
      const email = member("client_email");
      const keyId = typeof file.private_key_id === "string" ? file.private_key_id : undefined;
      const sign = keySigner(member("private_key"), keyId);
      const url = tokenUrl(file.token_uri);
      return async () => {
        const assertion = await sign(JSON.stringify(assertionClaims(email, url, options.clock)));
        return exchangeForm(options, TOKEN_SERVER, url, {
          grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer",
          assertion,
        });
      };
    }
    case "authorized_user": {
      const form = {
        grant_type: "refresh_token",
        client_id: member("client_id"),
        client_secret: member("client_secret"),
        refresh_token: member("refresh_token"),
      };
      return () => exchangeForm(options, TOKEN_SERVER, TOKEN_URL, form);
    }
    default:
      throw new Error(
        `the Google key file is of type ${JSON.stringify(file.type ?? null)}; supported are service_account and authorized_user`,
      );
  }
}

export function googleMetadataSource(host: string | undefined, options: TokenSourceOptions): TokenSource {
  return () =>
    readToken(options, "the metadata server", {
      url: `http://${host || METADATA_HOST}${METADATA_PATH}`,
      headers: { "metadata-flavor": "Google" },
    });
}

function keySigner(pem: string, kid: string | undefined): SignJwt {
  try {
    return createJwtSigner(pem, { alg: "RS256", kid });
  } catch {
    throw new Error("the `private_key` of the Google key file is not an RSA key in PEM with at least 2048 bits");
  }
}

function tokenUrl(value: unknown): string {
  if (value === undefined) return TOKEN_URL;
  const url = typeof value === "string" ? parseHttpUrl(value) : undefined;
  if (url === undefined || (url.protocol !== "https:" && !isLoopbackHost(hostOf(url.host))))
    throw new Error("the `token_uri` of the Google key file must be an https URL");
  return url.href;
}

function assertionClaims(email: string, url: string, clock: Clock): Record<string, unknown> {
  const nowSeconds = Math.floor(clock.now() / 1000);
  return { iss: email, scope: SCOPE, aud: url, iat: nowSeconds, exp: nowSeconds + ASSERTION_SECONDS };
}
