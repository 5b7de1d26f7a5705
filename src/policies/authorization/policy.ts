/**
 * `authorization`: CEL rules over the validated token claims and the rest of the request (spec 2.3).
 * Runs after every authentication policy (see the order in policies/index.ts), so `jwt.*` is either verified or
 * absent, never merely claimed.
 */
import { z } from "zod";
import { GatewayError } from "../../core/errors.ts";
import { definePolicy } from "../../core/policy.ts";
import { accessRule, compileAccessRules, denial } from "../../identity/access/access-rules.ts";

export const authorization = definePolicy({
  kind: "authorization",
  doc: "Admits a request only when its rules hold.",
  scopes: ["gateway", "route", "backend"],
  role: "security",
  schema: z.strictObject({
    rules: z
      .array(accessRule)
      .min(1)
      .describe(
        'CEL expressions that must all be true, for example `"admin" in jwt.roles`; or `{allow}`, `{deny}`, `{require}`.',
      ),
  }),

  compile(config, env) {
    // Compiled once per configuration load: a rule that does not parse stops the load, not a request.
    const rules = compileAccessRules(config.rules, "require", env.cel);
    const expressions = [...rules.allow, ...rules.deny, ...rules.require];
    return {
      reads: { requestBody: expressions.some((rule) => rule.reads("request.body")) },
      request(exchange) {
        const detail = denial(rules, exchange.attributes);
        if (detail !== undefined) throw new GatewayError("authorization_denied", { detail });
        return undefined;
      },
    };
  },
});
