/**
 * Signs JWTs for backends that verify the gateway, or the caller that it vouches for, with the gateway's public key.
 */
import { z } from "zod";
import type { Expression } from "../../cel/expression.ts";
import { ConfigError } from "../../core/config-error.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { CompileEnv } from "../../core/policy.ts";
import { celSource, duration, filePath, secret } from "../../core/schema.ts";
import { createJwtSigner, SIGNING_ALGORITHMS } from "../../identity/tokens/sign-jwt.ts";

const MAX_TTL_MS = 86_400_000;
/** The gateway sets these claims. */
const OWN_CLAIMS = ["iat", "exp"];

const claimName = z
  .string()
  .min(1)
  .refine((name) => !OWN_CLAIMS.includes(name), "the gateway sets `iat` and `exp`");

export const signingKeySchema = z.union([
  secret(),
  z.strictObject({ file: filePath().describe("A file that contains only the key.") }),
]);

export const jwtSignSchema = z
  .strictObject({
    signingKey: signingKeySchema.describe("The private key in PEM (RSA, EC, or Ed25519), or `{file}`."),
    alg: z
      .enum(SIGNING_ALGORITHMS)
      .optional()
      .describe("The signature algorithm. Default: the one that fits the key, RS256 for RSA."),
    kid: z.string().min(1).optional().describe("The ID of the key in the token's header."),
    claims: z
      .record(claimName, z.unknown())
      .default({})
      .describe("Claims with fixed values, for example `iss`, `sub`, and `aud`."),
    expressions: z
      .record(claimName, celSource())
      .default({})
      .describe("Claims with CEL values, for example `sub: jwt.sub`. If one cannot be evaluated, the client gets 403."),
    ttl: duration()
      .refine((ms) => ms >= 1_000 && ms <= MAX_TTL_MS, "expected 1s to 24h")
      .prefault("300s")
      .describe("How long a token is valid. Default: 300s."),
  })
  .superRefine(({ claims, expressions }, context) => {
    for (const name of Object.keys(expressions))
      if (Object.hasOwn(claims, name))
        context.addIssue({ code: "custom", path: ["expressions", name], message: "the claim is in `claims` too" });
  });

/** A token is reused within the second in which it was signed, because its claims would be the same. */
export function signedJwts(
  config: z.output<typeof jwtSignSchema>,
  env: CompileEnv,
): (exchange: Exchange) => Promise<string> {
  const { alg, kid, claims, ttl } = config;
  const sign = signerOf("signingKey", config.signingKey, { alg, kid }, env);
  const expressions = Object.entries(config.expressions).map(([name, source]) => [name, env.cel(source)] as const);
  let last: { readonly claims: string; readonly token: Promise<string> } | undefined;
  return (exchange) => {
    const iat = Math.floor(env.clock.now() / 1000);
    const evaluated = expressions.map(([name, expression]) => [name, claimValue(name, expression, exchange)]);
    const text = JSON.stringify({
      ...claims,
      ...Object.fromEntries(evaluated),
      iat,
      exp: iat + Math.ceil(ttl / 1000),
    });
    if (last?.claims !== text) last = { claims: text, token: sign(text) };
    return last.token;
  };
}

type SigningKey = z.output<typeof signingKeySchema>;

/** Throws a ConfigError that does not quote the key. */
export function signerOf(
  field: string,
  signingKey: SigningKey,
  options: Parameters<typeof createJwtSigner>[1],
  env: Pick<CompileEnv, "readFile">,
): ReturnType<typeof createJwtSigner> {
  try {
    return createJwtSigner(typeof signingKey === "string" ? signingKey : env.readFile(signingKey.file), options);
  } catch (error) {
    throw new ConfigError(undefined, field, error instanceof Error ? error.message : String(error));
  }
}

function claimValue(name: string, expression: Expression, { celAttributes }: Exchange): unknown {
  const result = expression.evaluate(celAttributes);
  if (result.ok && result.value !== null) return result.value;
  throw new GatewayError("authorization_denied", { detail: `the claim ${JSON.stringify(name)} has no value` });
}
