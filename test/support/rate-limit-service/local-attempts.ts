/**
 * Compiles local limits and requests tokens from them, for unit tests.
 */
import assert from "node:assert/strict";
import type { GatewayError } from "../../../src/core/errors.ts";
import type { Hooks } from "../../../src/core/policy.ts";
import type { RequestAttributes } from "../../../src/core/request-attributes.ts";
import { rateLimit } from "../../../src/policies/rate-limit/policy.ts";
import { type LimitEnv, limitExchange, request } from "./limit-env.ts";

export function compileLocal(env: LimitEnv, ...local: unknown[]): Hooks {
  return rateLimit.compile(rateLimit.schema.parse({ local }), env.env);
}

/** `true` for an admission, the refusal's headers otherwise. */
export async function attempt(
  scopes: readonly Hooks[],
  attributes: RequestAttributes = {},
): Promise<true | Readonly<Record<string, string>>> {
  try {
    await request(scopes, limitExchange(attributes));
    return true;
  } catch (error) {
    assert.equal((error as GatewayError).code, "rate_limited");
    assert.equal((error as GatewayError).status, 429);
    assert.equal((error as GatewayError).message, "rate limit exceeded");
    return (error as GatewayError).headers ?? {};
  }
}

export async function admitted(
  scopes: readonly Hooks[],
  tries: number,
  attributes: RequestAttributes = {},
): Promise<number> {
  let count = 0;
  for (let i = 0; i < tries; i++) if ((await attempt(scopes, attributes)) === true) count += 1;
  return count;
}
