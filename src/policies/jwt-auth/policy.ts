/**
 * `jwtAuth`: verifies bearer tokens from one or several issuers, each with its own keys. Unlike `mcpAuthentication`, it
 * serves no metadata and no login.
 */
import { z } from "zod";
import { authenticating, type CompileEnv, definePolicy } from "../../core/policy.ts";
import { markAddress } from "../../core/schema.ts";
import { parseHttpUrl } from "../../http/fetch.ts";
import {
  type AcceptedIssuer,
  authenticationMode,
  createBearerAuthentication,
} from "../../identity/access/bearer-authentication.ts";
import { BEARER_LOCATION } from "../../identity/access/credential-location.ts";
import { createTokenReader, isAttachedByPages, tokenLocation } from "../../identity/access/token-location.ts";
import {
  acquireConfiguredVerifier,
  acquireDiscovery,
  acquireVerifier,
  jwksSetting,
  selectKeySource,
} from "../../identity/keys/key-source.ts";
import { plain } from "../../identity/providers/plain.ts";
import { AUDIENCE_HINT } from "../../identity/providers/provider.ts";

const audiences = z
  .array(z.string().min(1))
  .min(1)
  .describe("Accepted audiences. The `aud` claim must contain at least one of them.");
const validation = z.strictObject({
  requiredClaims: z.array(z.string().min(1)).describe("Required claims besides `exp`."),
});
const issuer = markAddress(z.string().min(1), { unless: "jwks" }).describe(
  "The issuer of accepted tokens, exactly as in their `iss` claim: a URL, or any name if `jwks` is set.",
);

const provider = z
  .strictObject({
    issuer,
    audiences,
    jwks: jwksSetting.optional(),
    jwtValidationOptions: validation.optional(),
  })
  .superRefine(({ issuer: name, jwks }, context) => {
    const problem = issuerProblem(name, jwks);
    if (problem !== undefined) context.addIssue({ code: "custom", path: ["issuer"], message: problem });
  });

const schema = z
  .strictObject({
    mode: authenticationMode.optional(),
    issuer: issuer.optional(),
    audiences: audiences.optional(),
    jwks: jwksSetting.optional(),
    providers: z
      .array(provider)
      .min(1)
      .optional()
      .describe("Several issuers, each with its own audiences and keys, instead of `issuer`, `audiences` and `jwks`."),
    location: tokenLocation.optional().describe("Where the token is. Default: `authorization: Bearer`."),
    jwtValidationOptions: validation.optional(),
  })
  .superRefine((config, context) => {
    const problem = (path: (string | number)[], message: string): void =>
      context.addIssue({ code: "custom", path, message });
    const { providers } = config;
    if (providers === undefined) {
      if (config.issuer === undefined) problem(["issuer"], "required field is missing");
      else {
        const wrong = issuerProblem(config.issuer, config.jwks);
        if (wrong !== undefined) problem(["issuer"], wrong);
      }
      if (config.audiences === undefined) problem(["audiences"], "required field is missing");
      return;
    }
    for (const name of ["issuer", "audiences", "jwks", "jwtValidationOptions"] as const)
      if (config[name] !== undefined) problem([name], "not allowed with `providers`; set it in each provider");
    providers.forEach(({ issuer: name }, i) => {
      if (providers.findIndex((other) => other.issuer === name) !== i)
        problem(["providers", i, "issuer"], `the issuer "${name}" is named twice`);
    });
  });

type ProviderConfig = z.output<typeof provider>;

export const jwtAuth = definePolicy({
  kind: "jwtAuth",
  doc: "Requires a bearer token (JWT) from an identity provider, or from one of several.",
  scopes: ["gateway", "route"],
  role: "security",
  exemptsLogins: true,
  protection: () => "paths",
  requiresCredential: ({ mode, location }) => (mode === undefined || mode === "strict") && !isAttachedByPages(location),
  schema,

  compile(config, env) {
    const [first, ...others] = config.providers ?? [config as ProviderConfig];
    if (first === undefined) throw new Error("no issuer is configured");
    const reader = createTokenReader(config.location ?? BEARER_LOCATION, env.cel);
    const authenticate = createBearerAuthentication({
      kind: "jwtAuth",
      mode: config.mode ?? "strict",
      reader,
      issuers: [accepted(first, env), ...others.map((provider) => accepted(provider, env))],
      challenge: "",
      hint: ({ check }) => (check === "audience" ? AUDIENCE_HINT : undefined),
    });
    return {
      access: authenticating(env, { head: authenticate.request }, authenticate),
      ...(config.location ? { clients: { credentials: reader.places } } : {}),
    };
  },
});

function accepted(config: ProviderConfig, env: CompileEnv): AcceptedIssuer {
  const rules = {
    issuer: config.issuer,
    audiences: config.audiences,
    requiredClaims: config.jwtValidationOptions?.requiredClaims ?? [],
  };
  if (config.jwks !== undefined) return { verifier: acquireConfiguredVerifier(config.jwks, env), rules };
  const standard = plain({ issuer: config.issuer });
  return {
    verifier: acquireVerifier(selectKeySource(undefined, standard), acquireDiscovery(standard, env), env),
    rules,
  };
}

function issuerProblem(name: string, jwks: unknown): string | undefined {
  if (jwks !== undefined || parseHttpUrl(name)) return undefined;
  return "expected an http or https URL without credentials; an issuer that is not a URL needs `jwks`";
}
