/**
 * `jwtAuth`: the same bearer tokens as `mcpAuthentication`, for any HTTP or LLM route, without documents and login.
 * Both its refusals carry `www-authenticate`, so that clients know whether to log in or to refresh (RFC 6750).
 */
import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";
import { httpUrl } from "../../core/schema.ts";
import { authenticationMode, createBearerAuthentication } from "../../identity/access/bearer-authentication.ts";
import { BEARER_LOCATION, credentialLocation, credentialPlaces } from "../../identity/access/credential-location.ts";
import { jwksSetting, keepDiscovery, keepVerifier, keySourceOf } from "../../identity/keys/key-source.ts";
import { plain } from "../../identity/providers/plain.ts";

export const jwtAuth = definePolicy({
  kind: "jwtAuth",
  doc: "Requires a bearer token (JWT) from an identity provider.",
  scopes: ["gateway", "route"],
  role: "security",
  requiresCredential: ({ mode }) => mode === undefined || mode === "strict",
  schema: z.strictObject({
    mode: authenticationMode.optional(),
    issuer: httpUrl().describe("The issuer of accepted tokens, exactly as in their `iss` claim."),
    audiences: z
      .array(z.string().min(1))
      .min(1)
      .describe("Accepted values of the `aud` claim; one of them must be in it."),
    jwks: jwksSetting.optional(),
    location: credentialLocation.optional().describe("Where the token is. Default: `authorization: Bearer`."),
    jwtValidationOptions: z
      .strictObject({
        requiredClaims: z.array(z.string().min(1)).describe("Required claims besides `exp`."),
      })
      .optional(),
  }),

  compile(config, env) {
    const provider = plain({ issuer: config.issuer });
    const verifier = keepVerifier(keySourceOf(config.jwks, provider), keepDiscovery(provider, env), env);
    const authenticate = createBearerAuthentication({
      kind: "jwtAuth",
      mode: config.mode ?? "strict",
      location: config.location ?? BEARER_LOCATION,
      verifier,
      rules: {
        issuer: config.issuer,
        audiences: config.audiences,
        requiredClaims: config.jwtValidationOptions?.requiredClaims ?? [],
      },
      challenge: "",
      mend: provider.mend,
    });
    return {
      ...authenticate,
      ...(config.location ? { credentials: credentialPlaces(config.location) } : {}),
    };
  },
});
