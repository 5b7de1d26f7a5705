/**
 * `requestHeaderModifier`: adds, sets, and removes request headers before the request is sent to the backend.
 */

import { definePolicy } from "../../core/policy.ts";
import { isAuthority } from "../../core/schema.ts";
import { headerChanges } from "../../policy-parts/header-changes.ts";

export const requestHeaderModifier = definePolicy({
  kind: "requestHeaderModifier",
  doc: "Adds, sets and removes request headers. `remove` first, then `set`, then `add`.",
  scopes: ["gateway", "route", "backend", "model"],
  protection: () => "none",
  schema: headerChanges.schema,

  compile(config) {
    const apply = headerChanges.compile(config);
    return {
      shape: {
        replaces: [...(config.remove ?? []), ...Object.keys(config.set ?? {})],
        head(exchange) {
          apply(exchange.request.headers);
          // The authority sent to the backend follows the Host header.
          const host = config.set?.host;
          if (host !== undefined && isAuthority(host)) exchange.request.host = host;
          return undefined;
        },
      },
    };
  },
});
