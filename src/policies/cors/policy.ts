/**
 * `cors`: responds to preflights and adds CORS headers to responses for allowed origins, including errors. It runs
 * first, because a preflight carries no credentials and must not be rejected for that.
 */
import { z } from "zod";
import { isHeaderName } from "../../base/header-names.ts";
import type { Exchange } from "../../core/exchange.ts";
import { definePolicy } from "../../core/policy.ts";
import { emptyReply } from "../../core/reply.ts";
import { duration } from "../../core/schema.ts";
import { type CanonicalHost, canonicalOrigin, canonicalPattern, hostOf, matchesHost } from "../../http/host.ts";

/** Matches origins that allow every host. */
const ANY_HOST = /^(?:\*|[a-z][a-z0-9+.-]*:\/\/\*(?::(?:\d+|\*))?)$/i;
/** These methods are enough for MCP clients in a browser. */
const DEFAULT_METHODS = ["GET", "POST", "DELETE", "OPTIONS"];

export const cors = definePolicy({
  kind: "cors",
  doc: "Responds to CORS preflight requests and adds the headers that let browsers read responses.",
  scopes: ["gateway", "route"],
  merge: "innermost",
  protection: () => "none",
  schema: z
    .strictObject({
      allowOrigins: z
        .array(z.string().min(1))
        .min(1)
        .describe(
          'Allowed origins: exact, with a wildcard host (`https://*.example.com`, `https://*`), or `"*"` for any.',
        ),
      allowHeaders: z.array(token()).optional().describe('Request headers that a page may send; `"*"` allows any.'),
      allowMethods: z
        .array(token())
        .optional()
        .describe("Methods that a page may use. Default: GET, POST, DELETE, OPTIONS."),
      exposeHeaders: z
        .array(token())
        .optional()
        .describe("Response headers that a page may read, for example `Mcp-Session-Id`."),
      allowCredentials: z
        .boolean()
        .optional()
        .describe("Whether pages may send cookies; not together with origins that contain any host, such as `*`."),
      maxAge: duration().optional().describe("How long browsers may cache a preflight response, for example `10m`."),
    })
    .superRefine(({ allowCredentials, allowOrigins }, context) => {
      const any = allowOrigins.find((origin) => ANY_HOST.test(origin));
      if (!allowCredentials || any === undefined) return;
      const message = `allowCredentials cannot be combined with the origin ${JSON.stringify(any)}: list the origins`;
      context.addIssue({ code: "custom", message, path: ["allowCredentials"] });
    }),

  compile(config, env) {
    const origins = compileOrigins(config.allowOrigins);
    for (const origin of config.allowOrigins)
      if (origin !== "*" && !/^[a-z][a-z0-9+.-]*:\/\/[^/]+\/?$/i.test(origin))
        env.warn(
          `${JSON.stringify(origin)} can never match: an origin includes its scheme, for example https://example.com`,
        );
    const methods = config.allowMethods ?? DEFAULT_METHODS;
    const anyHeader = config.allowHeaders?.includes("*") === true;
    // With credentials, browsers read `*` in these headers as a name and not as a wildcard.
    const anyHeaderText = config.allowCredentials ? undefined : "*";
    const named = config.exposeHeaders?.filter((name) => name !== "*" || !config.allowCredentials);
    const expose = named === undefined || named.length === 0 ? undefined : named.join(", ");

    function originHeaders(origin: string): Record<string, string> {
      const headers: Record<string, string> = { "access-control-allow-origin": origins.any ? "*" : origin };
      if (config.allowCredentials) headers["access-control-allow-credentials"] = "true";
      return headers;
    }

    function preflight(exchange: Exchange, origin: string) {
      const requested = exchange.request.headers.get("access-control-request-headers");
      const allowHeaders = anyHeader ? (requested ?? anyHeaderText) : config.allowHeaders?.join(", ");
      return emptyReply(204, {
        ...originHeaders(origin),
        "access-control-allow-methods": methods.includes("*")
          ? (exchange.request.headers.get("access-control-request-method") ?? "*")
          : methods.join(", "),
        ...(allowHeaders === undefined || allowHeaders === "" ? {} : { "access-control-allow-headers": allowHeaders }),
        ...(expose === undefined ? {} : { "access-control-expose-headers": expose }),
        ...(config.maxAge === undefined ? {} : { "access-control-max-age": String(Math.round(config.maxAge / 1000)) }),
        vary: "origin, access-control-request-headers",
      });
    }

    return {
      access: {
        head(exchange) {
          const { request } = exchange;
          const origin = request.headers.get("origin");
          if (origin === undefined) return exchange.skip("the request has no Origin header");
          exchange.originAllowed = origins.allows(origin);
          if (request.method !== "OPTIONS" || !request.headers.has("access-control-request-method")) return undefined;
          // A preflight from a disallowed origin gets a response without CORS permissions, so the browser blocks the
          // call.
          return exchange.originAllowed ? preflight(exchange, origin) : emptyReply(204, { vary: "origin" });
        },
      },
      response: {
        head(exchange) {
          const origin = exchange.request.headers.get("origin");
          const { response } = exchange;
          if (!response) return;
          if (!origins.any) addVary(response.headers);
          // The policy replaces the backend's CORS headers, because two sets could contradict each other.
          for (const name of [
            "access-control-allow-origin",
            "access-control-allow-credentials",
            "access-control-expose-headers",
          ])
            response.headers.delete(name);
          if (origin === undefined || !origins.allows(origin)) return;
          for (const [name, value] of Object.entries(originHeaders(origin))) response.headers.set(name, value);
          const exposed = isLoginChallenge(response) ? addedName(expose, "www-authenticate") : expose;
          if (exposed !== undefined) response.headers.set("access-control-expose-headers", exposed);
        },
      },
    };
  },
});

/** The names are written into a header, so only token characters are allowed. `*` is a token character. */
function token() {
  return z.string().refine(isHeaderName, "expected a name, or *");
}

/** An MCP client in a browser must read where to log in. */
function isLoginChallenge({ source, status, headers }: NonNullable<Exchange["response"]>): boolean {
  return (
    source === "gateway" && status === 401 && headers.get("www-authenticate")?.includes("resource_metadata=") === true
  );
}

function addedName(list: string | undefined, name: string): string {
  if (list === undefined) return name;
  return list.split(", ").some((one) => one.toLowerCase() === name) ? list : `${list}, ${name}`;
}

function addVary(headers: { get(name: string): string | undefined; set(name: string, value: string): void }): void {
  const vary = headers.get("vary");
  if (vary === undefined) headers.set("vary", "origin");
  else if (!/(?:^|,)\s*(?:origin|\*)\s*(?:,|$)/i.test(vary)) headers.set("vary", `${vary}, origin`);
}

export interface Origins {
  readonly any: boolean;
  allows(origin: string): boolean;
}

interface Pattern {
  readonly scheme: string;
  readonly host: CanonicalHost;
  readonly port: string;
}

export function compileOrigins(allowed: readonly string[]): Origins {
  const any = allowed.includes("*");
  const exact = new Set<string>();
  const patterns: Pattern[] = [];
  for (const entry of allowed) {
    if (entry === "*") continue;
    const wildcard = /^([a-z][a-z0-9+.-]*):\/\/\*(\.[^:/]+)?(?::(\d+|\*))?$/i.exec(entry);
    if (wildcard) {
      patterns.push({
        scheme: (wildcard[1] as string).toLowerCase(),
        host: canonicalPattern(`*${wildcard[2] ?? ""}`),
        port: wildcard[3] ?? "",
      });
    } else exact.add(canonicalOrigin(entry.replace(/\/$/, "")) ?? entry);
  }
  return {
    any,
    allows(origin) {
      if (any) return true;
      const normal = canonicalOrigin(origin);
      if (normal === undefined) return false;
      if (exact.has(normal)) return true;
      return patterns.length > 0 && patterns.some((pattern) => fits(pattern, new URL(normal)));
    },
  };
}

function fits(pattern: Pattern, url: URL): boolean {
  return (
    url.protocol === `${pattern.scheme}:` &&
    matchesHost(pattern.host, hostOf(url.host)) &&
    (pattern.port === "*" || url.port === pattern.port)
  );
}
