/**
 * The schema of the configuration file (spec 2.1), derived from the lists of policies and backends: listeners with TLS
 * and HTTP versions, routes with matches, backends with canaries, the process section with its store, and both layouts.
 * Rejects unknown fields everywhere, and regular expressions that cannot be matched in linear time.
 */
import { z } from "zod";
import { backends } from "../../backends/index.ts";
import { linearRegex } from "../../base/regex.ts";
import type { BackendDefinition } from "../../core/backend.ts";
import type { PolicyDefinition, Scope } from "../../core/policy.ts";
import { celSource, duration, exactlyOneOf, headerName, port, secret } from "../../core/schema.ts";
import { pathFault } from "../../http/request-path.ts";
import { parseLogFilter } from "../../observe/log/log-filter.ts";
import { isAddressRange } from "../../pipeline/listen/trusted-peers.ts";
import { auditSchema } from "../../pipeline/records/audit.ts";
import { policies } from "../../policies/index.ts";
import { telemetrySchema } from "../../telemetry/settings.ts";
import { configTests } from "./tests-schema.ts";

const MAX_CANARY_WINDOW_MS = 3_600_000;

export const canarySchema = exactlyOneOf(
  z.strictObject({
    share: z
      .number()
      .gt(0)
      .max(100)
      .optional()
      .describe("Percent of the route's requests, for example 5. Exactly one of `share` and `when`."),
    when: celSource()
      .optional()
      .describe('CEL: the requests for which it is true, for example `request.headers["x-canary"] == "1"`.'),
    maxErrors: z
      .number()
      .min(0)
      .max(100)
      .default(5)
      .describe("Withdrawn if more than this percent of its requests in the window fail (5xx, no answer). Default: 5."),
    maxLatency: duration()
      .optional()
      .describe("Withdrawn if more than 5 percent of its requests in the window take longer to a response head."),
    minRequests: z
      .int()
      .min(1)
      .max(100_000)
      .default(20)
      .describe("Nothing is decided before so many requests in the window. Default: 20."),
    window: duration()
      .refine((ms) => ms >= 1000 && ms <= MAX_CANARY_WINDOW_MS, "from 1s to 1h")
      .default(60_000)
      .describe("The time over which failures are counted. Default: 1m."),
  }),
  ["share", "when"],
);

export type CanaryConfig = z.output<typeof canarySchema>;

type Check<Value> = [check: (value: Value) => boolean, problem: { message: string; path?: string[] }];

/** A canary does not support the sessions and failover of other backend kinds. */
export const onlyHttpCanaries: Check<object> = [
  (value) => !("canary" in value) || value.canary === undefined || "host" in value || "service" in value,
  { message: "only `host` and `service` backends can be a canary", path: ["canary"] },
];

export const hasOther: Check<readonly object[]> = [
  (list) => list.length === 0 || list.some((one) => !("canary" in one) || one.canary === undefined),
  { message: "a canary needs a backend beside it, which serves the other requests" },
];

export const acceptsHttp2 = z
  .boolean()
  .default(true)
  .describe("Accepts HTTP/2: by ALPN over TLS, with prior knowledge (h2c) without. `false`: HTTP/1.1 only.");

export const backendProtocol = z
  .enum(["http1", "h2", "h2c", "auto"])
  .describe(
    "Of `host` and `service`: `h2` is HTTP/2 over TLS, `h2c` without, `auto` HTTP/2 where the server chooses it by ALPN. Default: `http1`.",
  );

/** The arguments of `refine` for an entry of `backends`. */
export const onlyHttpBackends: [check: (value: object) => boolean, problem: { message: string; path: string[] }] = [
  (value) => !("protocol" in value) || value.protocol === undefined || "host" in value || "service" in value,
  { message: "only `host` and `service` backends have a protocol", path: ["protocol"] },
];

const SERVER_NAME = /^(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$/;
const certFile = z.string().min(1).describe("A PEM file with the certificate chain, or the PEM text itself.");
const keyFile = z.string().min(1).describe("A PEM file with the private key, or the PEM text itself.");

export const listenerTls = z
  .strictObject({
    cert: certFile.optional(),
    key: keyFile.optional(),
    certificates: z
      .array(
        z.strictObject({
          cert: certFile,
          key: keyFile,
          hosts: z
            .array(z.string().regex(SERVER_NAME, "expected a host name, or `*.` and a host name"))
            .min(1)
            .optional()
            .describe("Server names (SNI) that get this certificate, also `*.example.com`. Default: those in it."),
        }),
      )
      .min(1)
      .optional()
      .describe("Several certificates, chosen by server name. `cert`, else the first one, where no name fits."),
    minVersion: z.enum(["TLSv1.2", "TLSv1.3"]).default("TLSv1.2").describe("The lowest version that is spoken."),
    ciphers: z.string().min(1).optional().describe("Cipher suites as an OpenSSL list. Default: those of Node.js."),
    clientAuth: z
      .strictObject({
        ca: z.string().min(1).describe("A PEM file with the certificates that sign those of clients, or the PEM text."),
        mode: z
          .enum(["require", "optional"])
          .default("require")
          .describe("`optional`: clients without a certificate pass. One that does not verify never does."),
      })
      .optional()
      .describe("Asks clients for certificates; the subject is readable in CEL as `source.identity`."),
  })
  .refine((value) => (value.cert === undefined) === (value.key === undefined), {
    message: "`cert` and `key` must be set together",
  })
  .refine((value) => value.cert !== undefined || value.certificates !== undefined, {
    message: "set `cert` and `key`, or `certificates`",
  });

const regex = z.string().superRefine((source, context) => {
  try {
    linearRegex(source);
  } catch (error) {
    context.addIssue({
      code: "custom",
      message: `not a valid regular expression (RE2 syntax): ${(error as Error).message}`,
    });
  }
});

const valueMatch = exactlyOneOf(
  z.strictObject({
    name: z.string().min(1).describe("The name of the header or query parameter."),
    exact: z.string().optional().describe("The whole value."),
    regex: regex.optional().describe("A regular expression for the whole value (RE2 syntax)."),
  }),
  ["exact", "regex"],
);

const absolutePath = z
  .string()
  .startsWith("/", "a path begins with /")
  .superRefine((path, context) => {
    const fault = /[?#]/.test(path) ? "a query or fragment in the path" : pathFault(path);
    if (fault !== undefined) context.addIssue({ code: "custom", message: `no request can match ${fault}` });
  });

export const routeMatch = z.strictObject({
  path: exactlyOneOf(
    z.strictObject({
      exact: absolutePath.optional().describe("The whole path."),
      pathPrefix: absolutePath
        .optional()
        .describe("A prefix of whole segments: `/a` matches `/a` and `/a/b`, not `/ab`."),
      regex: regex.optional().describe("A regular expression for the whole path (RE2 syntax)."),
    }),
    ["exact", "pathPrefix", "regex"],
  )
    .optional()
    .describe("Default: the prefix `/`."),
  method: z
    .string()
    .regex(/^[A-Z]+$/, "write methods in upper case")
    .optional()
    .describe("The request's method, for example `POST`."),
  headers: z.array(valueMatch).optional().describe("Required headers; all must match."),
  query: z.array(valueMatch).optional().describe("Required query parameters; all must match."),
});

const folder = z.strictObject({
  folder: z
    .string()
    .min(1)
    .describe("A folder that the gateway writes to, relative to this file. One gateway at a time uses it."),
});

const redis = z.strictObject({
  redis: z
    .string()
    .refine(isRedisUrl, "expected redis://[user:password@]host[:port][/database], or rediss:// for TLS")
    // The URL may contain a password.
    .meta({
      secret: true,
      description:
        "`redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS. Redis 6.2 or newer. Replicas that share it share sessions and budgets.",
    }),
  prefix: z.string().max(64).default("gateway:").describe("Stands before every key. Default: `gateway:`."),
  timeout: duration()
    .default(1_000)
    .describe("How long one operation may take before the store counts as unavailable. Default: 1s."),
  ca: z.string().min(1).optional().describe("With `rediss://`: a PEM file with the authorities to trust."),
});

export const storeSchema = z.union([z.literal("memory"), folder, redis]);

function isRedisUrl(text: string): boolean {
  try {
    const { protocol, hostname, pathname, search } = new URL(text);
    const isDatabase = /^\/?\d*$/.test(pathname);
    return (protocol === "redis:" || protocol === "rediss:") && hostname !== "" && isDatabase && search === "";
  } catch {
    return false;
  }
}

const DEFAULT_DRAIN = "30s";
/** Longer than any reasonable ping interval, and short enough to release abandoned connections. */
const DEFAULT_TUNNEL_IDLE = "1h";

/** Above any useful thread count. */
const MAX_WORKERS = 128;

const backend = exactlyOneOf(
  z.strictObject({
    ...Object.fromEntries(
      backends.map((definition) => [definition.key, backendSchema(definition).optional().describe(definition.doc)]),
    ),
    weight: z.int().min(0).max(1_000_000).optional().describe("Share of the route's requests. Default: 1."),
    protocol: backendProtocol.optional(),
    canary: canarySchema
      .optional()
      .describe("The backend is on trial: it gets some requests, and none when too many fail. It has no `weight`."),
    policies: policiesOf("backend").optional().describe("Policies of this backend; they run for each attempt."),
  }),
  backends.map(({ key }) => key),
)
  .refine(...onlyHttpBackends)
  .refine(...onlyHttpCanaries);

const gateway = z
  .strictObject({
    port: port().describe("Listener port; 0 selects a free port."),
    protocol: z.enum(["HTTP", "HTTPS"]).default("HTTP").describe("`HTTPS` needs `tls`."),
    address: z.string().min(1).optional().describe("The address to bind. Default: all interfaces."),
    tls: listenerTls.optional().describe("Certificates and TLS settings of the listener; with `protocol: HTTPS`."),
    http2: acceptsHttp2,
    policies: policiesOf("gateway")
      .optional()
      .describe("Policies of every request of this listener; routes add their own."),
  })
  .refine((value) => (value.protocol === "HTTPS") === (value.tls !== undefined), {
    message: "`protocol: HTTPS` and `tls` must be set together",
    path: ["tls"],
  });

const gatewayNames = z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]);

export const routeSchema = z.strictObject({
  name: z.string().min(1).max(253).optional().describe("Default: `route<index>`."),
  gateways: gatewayNames
    .optional()
    .describe("The gateways that serve it. Default: the one named `default`, or the only one."),
  hostnames: z.array(z.string().min(1)).optional().describe("Host names, also `*.example.com`. Default: any."),
  matches: z
    .array(routeMatch)
    .min(1)
    .optional()
    .describe("One of these must match. Default: every path; for MCP backends `/mcp` and `/sse`."),
  backends: z
    .array(backend)
    .refine(...hasOther)
    .optional()
    .describe("The backends; several share the requests by weight."),
  policies: policiesOf("route").optional().describe("Policies of this route."),
});

const processSection = z.strictObject({
  adminAddr: z
    .string()
    .refine(isAdminAddress, "expected ip:port, localhost:port, unix:/path/to/socket, or off")
    .optional()
    .describe(
      "Admin address: `ip:port`, `unix:/path/to/socket`, or `off`. Default: loopback on port 15000. Read at startup only.",
    ),
  statsAddr: z
    .string()
    .refine(isAdminAddress, "expected ip:port, localhost:port, unix:/path/to/socket, or off")
    .optional()
    .describe("Serves /metrics and /healthz here too. Read at startup only."),
  sensitiveHeaders: z
    .array(headerName())
    .optional()
    .describe(
      "Header names redacted in trace and debug output, besides the always redacted ones. Read at startup only.",
    ),
  trustedProxies: z
    .array(z.string().refine(isAddressRange, "expected an IP address or a CIDR range such as 10.0.0.0/8"))
    .optional()
    .describe("Addresses or CIDR ranges whose `x-forwarded-*` headers are trusted. Read at startup only."),
  allowConfigEdit: z
    .boolean()
    .optional()
    .describe(
      "Whether the web UI on the admin address may write the configuration file, and operators of the UI the lock files of tools. Default: false. Read at startup only.",
    ),
  store: storeSchema
    .optional()
    .describe(
      "Where data lives that outlives the process: `memory` (lost at a restart), `{ folder }` or `{ redis }`. Default: memory. Read at startup only.",
    ),
  cacheMaxBytes: z
    .int()
    .min(0)
    .optional()
    .describe(
      "Bytes for the response cache of `ai` backends in a store in memory or in a folder; responses that were used longest ago are evicted. Default: 64 MiB, or a twentieth of the memory if that is less. Read at startup only.",
    ),
  sessionKey: z
    .union([secret().min(32), z.array(secret().min(32)).min(1)])
    .transform((given) => (typeof given === "string" ? [given] : given))
    .optional()
    .describe(
      "Signs the ids of MCP sessions: at least 32 characters, the same for all replicas; of a list, the first signs and all are accepted. Default: made by itself and kept in the store. Read at startup only.",
    ),
  drainTimeout: duration()
    .default(durationOf(DEFAULT_DRAIN))
    .describe("How long a shutdown waits for requests in flight. Default: 30s."),
  tunnelIdleTimeout: duration()
    .default(durationOf(DEFAULT_TUNNEL_IDLE))
    .describe(
      "How long an upgraded connection (WebSocket) may be idle in both directions before it is closed; 0s: no limit. Default: 1h. Read at startup only.",
    ),
  workers: z
    .union([z.literal("auto"), z.int().min(1).max(MAX_WORKERS)], `expected auto or a number from 1 to ${MAX_WORKERS}`)
    .optional()
    .describe(
      "How many threads serve requests: a number, or `auto` for one per processor core. Needs Linux and Node 22.12 or newer. Default: 1. Read at startup only.",
    ),
  logging: z
    .strictObject({
      level: z
        .string()
        .superRefine((text, context) => {
          const parsed = parseLogFilter(text);
          if (!parsed.ok) context.addIssue({ code: "custom", message: parsed.error });
        })
        .optional()
        .describe(
          "A log filter, for example `info,mcp=trace`; `access=off` turns the line per request off. Default: info.",
        ),
      format: z.enum(["text", "json"]).optional().describe("Default: text."),
      access: z
        .strictObject({
          fields: z
            .record(z.string().min(1).max(100), celSource())
            .optional()
            .describe("More fields of each access log line: name and CEL expression. Redacted like the trace."),
          filter: celSource()
            .optional()
            .describe(
              "A CEL expression: only requests for which it is true get a line, for example `response.code >= 400`.",
            ),
        })
        .optional()
        .describe("The access log: one line per request."),
    })
    .optional()
    .describe("Read at startup only; the admin interface changes the level at run time."),
  tracing: z
    .strictObject({
      keepFailed: z
        .strictObject({
          maxBytes: z
            .int()
            .min(64 * 1024)
            .max(1024 * 1024 * 1024)
            .default(16 * 1024 * 1024)
            .describe("Memory for kept traces; the oldest go first. Default: 16777216."),
        })
        .optional()
        .describe("Keeps the full trace of failed and rejected requests for `gwctl explain` and the UI."),
    })
    .optional()
    .describe("Read at startup only. Tracing every request costs time: off unless set."),
  audit: auditSchema
    .optional()
    .describe("Records who called which tool or model with which arguments. Read at startup only."),
  telemetry: telemetrySchema
    .optional()
    .describe("OpenTelemetry: traces, metrics and log records over OTLP. Read at startup only."),
});

/** The target of a backendRef to a Service in an HTTPRoute document. */
const services = z.record(z.string().min(1), z.union([z.string(), backend]));

/** `mcp` and `llm`: the fields of one backend, on its own port or on one of `gateways`. */
const sections = Object.fromEntries(
  backends.flatMap((definition) => {
    const { section, doc } = definition;
    const schema = backendSchema(definition);
    if (!section || !(schema instanceof z.ZodObject)) return [];
    const fields = schema
      .safeExtend({
        gateway: z
          .string()
          .min(1)
          .optional()
          .describe("One of `gateways` that serves it. Default: a listener of its own."),
        port: port().optional().describe(`Listener port. Default: ${section.defaultPort}.`),
        address: z.string().min(1).optional().describe("The address to bind. Default: all interfaces."),
        policies: policiesOf("route").optional(),
      })
      .superRefine((value, context) => {
        for (const field of ["port", "address"] as const)
          if (value.gateway !== undefined && value[field] !== undefined)
            context.addIssue({
              code: "custom",
              path: [field],
              message: `with \`gateway\` it listens where that gateway does: leave \`${field}\` out`,
            });
      });
    return [[section.name, fields.optional().describe(`A listener of its own, or \`gateway\`. ${doc}`)]];
  }),
);

const ui = z.strictObject({
  gateways: gatewayNames
    .optional()
    .describe("The gateways that serve it. Default: the one named `default`, or the only one."),
  policies: policiesOf("route").optional().describe("Without policies, only loopback clients are accepted."),
  operator: celSource()
    .optional()
    .describe(
      "Who may change something: a CEL expression that is true for operators, for example `'operator' in jwt.roles`. All others only see. Default: nobody.",
    ),
});

export const configSchema = z.strictObject({
  config: processSection.optional().describe("Settings of the process."),
  gateways: z.record(z.string().min(1), gateway).optional().describe("Listeners by name."),
  routes: z.array(routeSchema).optional().describe("Routes: which requests go to which backends."),
  services: services
    .optional()
    .describe("Targets of Service references in HTTPRoute documents: `host:port`, or a backend."),
  ui: ui.optional().describe("Attaches the web UI to gateways under `/ui`, read-only but for operators."),
  tests: configTests.optional().describe("Tests of this configuration, run by `gateway --test`."),
  ...sections,
});

export type WrittenConfig = z.output<typeof configSchema>;
export type WrittenRoute = z.output<typeof routeSchema>;
export type WrittenGateway = z.output<typeof gateway>;
export type WrittenBackend = z.output<typeof backend>;
export type WrittenProcess = z.output<typeof processSection>;

/** The `policies` object of a scope, with every policy kind allowed there. */
export function policiesOf(scope: Scope) {
  return z.strictObject(
    Object.fromEntries(policies.filter((policy) => policy.scopes.includes(scope)).map(policyEntry)),
  );
}

/** Includes the policies allowed inside the backend. */
export function backendSchema({ schema, schemaWith }: BackendDefinition): z.ZodType {
  return schemaWith?.(policiesOf("model")) ?? schema;
}

function policyEntry({ kind, schema, doc }: PolicyDefinition): [string, z.ZodOptional<z.ZodType>] {
  return [kind, schema.optional().describe(doc)];
}

function isAdminAddress(text: string): boolean {
  if (text === "off") return true;
  if (text.startsWith("unix:")) return text.length > "unix:".length && Buffer.byteLength(text) <= 112;
  return /^(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:.]+\]|\*):\d{1,5}$/.test(text);
}

function durationOf(text: string): number {
  return duration().parse(text);
}
