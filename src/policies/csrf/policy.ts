/**
 * `csrf`: rejects requests that a page of another origin makes with the credentials of a browser. Clients that are not
 * browsers send neither `Sec-Fetch-Site` nor `Origin` and are not affected.
 */
import { z } from "zod";
import { GatewayError } from "../../core/errors.ts";
import type { GatewayRequest } from "../../core/exchange.ts";
import { definePolicy } from "../../core/policy.ts";
import { canonicalOrigin, isOwnOrigin } from "../../http/host.ts";

const SAFE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);
const ORIGIN = /^https?:\/\/[^/?#@\s]+$/;

export const csrf = definePolicy({
  kind: "csrf",
  doc: "Rejects requests that change something if a page of another origin makes them.",
  scopes: ["gateway", "route"],
  role: "security",
  protection: () => "paths",
  schema: z.strictObject({
    additionalOrigins: z
      .array(z.string().regex(ORIGIN, "expected an origin such as https://app.example.com"))
      .default([])
      .describe(
        "Further origins whose pages may make such requests, for example `https://app.example.com`. Default: only pages of the requested host.",
      ),
  }),

  compile({ additionalOrigins }) {
    const allowed = new Set(additionalOrigins.map(canonicalOrigin));
    return {
      access: {
        head({ request }) {
          if (SAFE_METHODS.has(request.method) && !request.headers.has("upgrade")) return undefined;
          const detail = foreignPage(request, allowed);
          if (detail === undefined) return undefined;
          throw new GatewayError("origin_denied", { message: "CSRF validation failed", detail });
        },
      },
    };
  },
});

/** Returns why the request comes from a page of another origin, or undefined if it does not. */
function foreignPage({ headers, host }: GatewayRequest, allowed: ReadonlySet<string | undefined>): string | undefined {
  const origins = headers.getAll("origin");
  const sites = headers.getAll("sec-fetch-site");
  const [origin] = origins;
  if (origins.length > 1 || sites.length > 1) return "the origin is ambiguous";
  const canonical = origin === undefined ? undefined : canonicalOrigin(origin);
  if (canonical !== undefined && allowed.has(canonical)) return undefined;
  const [site] = sites;
  if (site !== undefined)
    return site === "same-origin" || site === "none" ? undefined : `Sec-Fetch-Site is ${site}, expected same-origin`;
  if (origin === undefined) return undefined;
  // A proxy that terminates TLS can change the scheme.
  return isOwnOrigin(origin, host) ? undefined : `the origin is ${origin}, expected the host ${host}`;
}
