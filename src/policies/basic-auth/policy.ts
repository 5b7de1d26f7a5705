/**
 * `basicAuth`: authenticates requests by user name and password (RFC 7617) from an htpasswd file. Rules can read the
 * user as `basicAuth.username`.
 */
import { z } from "zod";
import { ConfigError } from "../../core/config-error.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { authenticating, definePolicy } from "../../core/policy.ts";
import { userPrincipal } from "../../core/principal.ts";
import { filePath, secret } from "../../core/schema.ts";
import { clientAddress } from "../../core/source.ts";
import { authenticationMode, toleratedInShadow } from "../../identity/access/bearer-authentication.ts";
import {
  type CredentialLocation,
  credentialLocation,
  credentialPlaces,
  readCredential,
  withhold,
} from "../../identity/access/credential-location.ts";
import { compileFailureLimit, failureLimitSchema } from "../../identity/passwords/failed-credentials.ts";
import { createHtpasswd, type Htpasswd } from "../../identity/passwords/htpasswd.ts";
import { PasswordChecks } from "../../identity/passwords/password-checks.ts";
import { decodeString } from "../../json/syntax.ts";

const BASIC_LOCATION: CredentialLocation = { header: { name: "authorization", prefix: "Basic " } };
const utf8 = new TextDecoder("utf-8", { fatal: true });

export const basicAuth = definePolicy({
  kind: "basicAuth",
  doc: "Requires a user name and password from an htpasswd file.",
  scopes: ["gateway", "route"],
  role: "security",
  exemptsLogins: true,
  protection: () => "paths",
  requiresCredential: ({ mode }) => mode === undefined || mode === "strict",
  schema: z.strictObject({
    mode: authenticationMode.optional(),
    htpasswd: z
      .union([secret(), z.strictObject({ file: filePath() })])
      .describe("Lines of `user:hash` (bcrypt, apr1 or SHA), or `{file}`."),
    realm: z
      .string()
      .regex(/^[\x20-\x21\x23-\x5b\x5d-\x7e]+$/, "printable characters without quotes")
      .optional()
      .describe("Shown by browsers. Default: gateway."),
    location: credentialLocation
      .optional()
      .describe(
        "Where the credential is. Default: `authorization: Basic`. Clients of a forward proxy send `proxy-authorization: Basic`.",
      ),
    failureLimit: failureLimitSchema,
  }),

  compile(config, env) {
    const mode = config.mode ?? "strict";
    const location = config.location ?? BASIC_LOCATION;
    const isForProxy = "header" in location && location.header.name === "proxy-authorization";
    const challenge = {
      [isForProxy ? "proxy-authenticate" : "www-authenticate"]:
        `Basic realm="${config.realm ?? "gateway"}", charset="UTF-8"`,
    };
    const text = typeof config.htpasswd === "string" ? config.htpasswd : env.readFile(config.htpasswd.file);
    let passwords: Htpasswd;
    try {
      // All policies of this kind share one instance.
      const checks = env.acquireShared("password checks", () => new PasswordChecks(env.clock));
      passwords = createHtpasswd(text, checks);
    } catch (error) {
      throw new ConfigError(undefined, "htpasswd", (error as Error).message);
    }

    const failureLimit = compileFailureLimit(config.failureLimit, "basicAuth", env);

    function reject(exchange: Exchange, detail: string): undefined {
      if (mode === "permissive") {
        toleratedInShadow(exchange, "basicAuth", detail);
        return undefined;
      }
      throw new GatewayError(isForProxy ? "proxy_authentication_failed" : "authentication_failed", {
        message: "basic authentication failed",
        detail,
        headers: challenge,
      });
    }

    function decide(exchange: Exchange, username: string, isCorrect: boolean): undefined {
      withhold(exchange, location, isCorrect);
      if (!isCorrect) {
        if (mode !== "permissive") failureLimit.failed(exchange.source, username);
        return reject(exchange, "the user name or the password is wrong");
      }
      exchange.attributes.basicAuth = { username };
      exchange.authenticated(userPrincipal(username, passwords.entryOf(username) ?? ""));
      return undefined;
    }

    function head(exchange: Exchange): undefined | Promise<undefined> {
      const found = readCredential(exchange.request, location);
      if (found.kind === "none" && mode !== "optional") reject(exchange, "no user name and password were sent");
      if (found.kind === "none") return exchange.skip("no user name and password were sent; none are required");
      const pair = found.kind === "found" ? parsePair(found.value) : undefined;
      if (!pair) {
        withhold(exchange, location, false);
        return reject(exchange, found.kind === "bad" ? found.detail : "the credential is not base64 of user:password");
      }
      if (mode !== "permissive") failureLimit.check(exchange.source, pair.username);
      const result = passwords.check(pair.username, pair.password, clientAddress(exchange.source));
      if (typeof result === "boolean") return decide(exchange, pair.username, result);
      return result.then((isCorrect) => decide(exchange, pair.username, isCorrect));
    }

    return {
      access: authenticating(
        env,
        { head },
        {
          // A recorded identity has no password, so only the existence of the user can be checked.
          recorded(exchange, { principals }) {
            const user = principals.find((principal) => principal.startsWith(BASIC));
            if (user === undefined)
              return mode === "strict" ? reject(exchange, "no user name and password were sent") : undefined;
            const username = decodeString(user.slice(BASIC.length + 1, -1));
            if (passwords.entryOf(username) === undefined) return reject(exchange, "the user does not exist");
            return decide(exchange, username, true);
          },
        },
      ),
      clients: {
        ...(config.location ? { credentials: credentialPlaces(config.location) } : {}),
        configured: () =>
          passwords.users().map((username) => ({
            kind: "user",
            principal: `${BASIC}${JSON.stringify(username)}`,
            attributes: { username },
          })),
      },
    };
  },
});

const BASIC = "basic:";

function parsePair(value: string): { username: string; password: string } | undefined {
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(value)) return undefined;
  try {
    const text = utf8.decode(Buffer.from(value, "base64"));
    const colon = text.indexOf(":");
    return colon < 0 ? undefined : { username: text.slice(0, colon), password: text.slice(colon + 1) };
  } catch {
    return undefined;
  }
}
