/**
 * `allowMethods`: only the listed methods pass; others get 405 with `allow`. Runs before authentication would be
 * asked for anything, because the answer is the same for everybody.
 */
import { z } from "zod";
import { GatewayError } from "../../src/core/errors.ts";
import { definePolicy } from "../../src/core/policy.ts";

export const allowMethods = definePolicy({
  kind: "allowMethods",
  doc: "Refuses methods that are not listed.",
  scopes: ["gateway", "route"],
  schema: z.strictObject({
    methods: z
      .array(z.string().regex(/^[A-Z]+$/, "methods are written in capitals"))
      .min(1)
      .describe("The methods that may pass, for example `[GET, HEAD]`."),
  }),

  compile(config) {
    // Once per configuration load, not per request.
    const allowed = new Set(config.methods);
    const allow = config.methods.join(", ");
    return {
      request({ request }) {
        if (allowed.has(request.method)) return undefined;
        throw new GatewayError("method_not_allowed", { headers: { allow } });
      },
    };
  },
});
