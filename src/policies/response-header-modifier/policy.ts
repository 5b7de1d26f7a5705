/**
 * `responseHeaderModifier`: adds, sets, and removes response headers, also on responses that the gateway generates.
 */

import { definePolicy } from "../../core/policy.ts";
import { headerChanges } from "../../policy-parts/header-changes.ts";

export const responseHeaderModifier = definePolicy({
  kind: "responseHeaderModifier",
  doc: "Adds, sets and removes response headers. `remove` first, then `set`, then `add`.",
  scopes: ["gateway", "route", "backend", "model"],
  protection: () => "none",
  schema: headerChanges.schema,

  compile(config) {
    const apply = headerChanges.compile(config);
    return {
      response: {
        head(exchange) {
          if (exchange.response) apply(exchange.response.headers);
        },
      },
    };
  },
});
