/**
 * `allowMethods`: allows only the listed methods; others get 405 with `allow`. Runs before authentication, because the
 * response does not depend on the user.
 */
import { z } from "zod";
import { GatewayError } from "../../src/core/errors.ts";
import { definePolicy } from "../../src/core/policy.ts";

export const allowMethods = definePolicy({
  kind: "allowMethods",
  doc: "Rejects methods that are not listed.",
  scopes: ["gateway", "route"],
  protection: () => "route",
  schema: z.strictObject({
    methods: z
      .array(z.string().regex(/^[A-Z]+$/, "write methods in upper case"))
      .min(1)
      .describe("The allowed methods, for example `[GET, HEAD]`."),
  }),

  compile(config) {
    // Once per configuration load, not per request.
    const allowed = new Set(config.methods);
    const allow = config.methods.join(", ");
    return {
      access: {
        head({ request }) {
          if (allowed.has(request.method)) return undefined;
          throw new GatewayError("method_not_allowed", { headers: { allow } });
        },
      },
    };
  },
});
