/**
 * Defines the schema of the configuration file (spec 2.1), derived from the lists of policies and backends.
 */
import { z } from "zod";
import { backends } from "../../backends/index.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { linearRegex } from "../../base/regex.ts";
import type { BackendDefinition } from "../../core/backend.ts";
import type { PolicyDefinition, Scope } from "../../core/policy.ts";
import {
  celSource,
  duration,
  exactlyOneOf,
  filePath,
  headerName,
  markAddress,
  port,
  secret,
} from "../../core/schema.ts";
import { isAddressRange } from "../../http/address-range.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { pathFault } from "../../http/request-path.ts";
import { policies } from "../../policies/index.ts";
import { auditSchema } from "../../record/audit.ts";
import { historySchema } from "../../record/history-record.ts";
import { parseLogFilter } from "../../record/log/logger.ts";
import { telemetrySchema } from "../../record/telemetry/settings.ts";
import { configTests } from "./tests-schema.ts";

const MAX_CANARY_WINDOW_MS = 3_600_000;

export const canarySchema = exactlyOneOf(
  z.strictObject({
    share: z
      .number()
      .gt(0)
      .max(100)
      .optional()
      .describe("Percentage of the route's requests, for example 5. Set exactly one of `share` and `when`."),
    when: celSource()
      .optional()
      .describe('A CEL expression that selects requests, for example `request.headers["x-canary"] == "1"`.'),
    maxErrors: z
      .number()
      .min(0)
      .max(100)
      .default(5)
      .describe(
        "Withdraws the canary if more than this percentage of its requests in the window fail (5xx or no response). Default: 5.",
      ),
    maxLatency: duration()
      .optional()
      .describe(
        "Withdraws the canary if more than 5% of its requests in the window take longer to return response headers.",
      ),
    minRequests: z
      .int()
      .min(1)
      .max(100_000)
      .default(20)
      .describe("The canary is not withdrawn before it has received this many requests in the window. Default: 20."),
    window: duration()
      .refine((ms) => ms >= 1000 && ms <= MAX_CANARY_WINDOW_MS, "from 1s to 1h")
      .default(60_000)
      .describe("The time over which failures are counted. Default: 1m."),
  }),
  ["share", "when"],
  ". For both, list the host in two backends, each with its own canary",
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
  .describe(
    "Accepts HTTP/2: by ALPN over TLS, and with prior knowledge (h2c) without TLS. `false` allows only HTTP/1.1.",
  );

export const backendProtocol = z
  .enum(["http1", "h2", "h2c", "auto"])
  .describe(
    "The protocol for `host` and `service` backends: `h2` is HTTP/2 over TLS, `h2c` is HTTP/2 without TLS, and `auto` uses HTTP/2 if the server selects it by ALPN. Default: `http1`.",
  );

export const onlyHttpBackends: Check<object> = [
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
            .describe(
              "Server names (SNI) that use this certificate, including wildcards such as `*.example.com`. Default: the names in the certificate.",
            ),
        }),
      )
      .min(1)
      .optional()
      .describe(
        "Several certificates, selected by server name. If no name matches, `cert` is used, or the first certificate of the list.",
      ),
    minVersion: z.enum(["TLSv1.2", "TLSv1.3"]).default("TLSv1.2").describe("The minimum TLS version."),
    ciphers: z.string().min(1).optional().describe("Cipher suites as an OpenSSL list. Default: the Node.js defaults."),
    clientAuth: z
      .strictObject({
        ca: z
          .string()
          .min(1)
          .describe("A PEM file with the CA certificates that sign client certificates, or the PEM text itself."),
        mode: z
          .enum(["require", "optional"])
          .default("require")
          .describe("`optional` also accepts clients without a certificate. Invalid certificates are always rejected."),
      })
      .optional()
      .describe("Requests client certificates. CEL expressions read the subject as `source.identity`."),
  })
  .refine((value) => (value.cert === undefined) === (value.key === undefined), {
    message: "`cert` and `key` must be set together",
  })
  .refine((value) => value.cert !== undefined || value.certificates !== undefined, {
    message: "set `cert` and `key`, or `certificates`",
  });

const PATTERN = peerInput("file/pattern");

const regex = z.string().superRefine((source, context) => {
  try {
    linearRegex(PATTERN, source);
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
    .describe("The request method, for example `POST`."),
  headers: z.array(valueMatch).optional().describe("Required headers; all must match."),
  query: z.array(valueMatch).optional().describe("Required query parameters; all must match."),
});

const folder = z.strictObject({
  folder: z
    .string()
    .min(1)
    .describe("A folder that the gateway writes to, relative to this file. Only one gateway at a time can use it."),
});

export const redisSchema = z.strictObject({
  redis: z
    .string()
    .refine(isRedisUrl, "expected redis://[user:password@]host[:port][/database], or rediss:// for TLS")
    // The URL may contain a password.
    .meta({
      secret: true,
      description:
        "`redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS. Redis 6.2 or newer. Replicas that share it share sessions and budgets.",
    }),
  password: secret().optional().describe("The password, if it is not in the URL."),
  prefix: z.string().max(64).default("gateway:").describe("The prefix of every key. Default: `gateway:`."),
  timeout: duration()
    .default(1_000)
    .describe("How long one operation may take before the store counts as unavailable. Default: 1s."),
  ca: filePath().optional().describe("A PEM file with the CA certificates to trust for `rediss://`."),
});

export const storeSchema = z.union([z.literal("memory"), folder, redisSchema]);

function weight(of: "requests" | "connections") {
  return z
    .int()
    .min(0)
    .max(1_000_000)
    .optional()
    .describe(`The backend's share of the route's ${of}, relative to the other weights. Default: 1.`);
}

function isRedisUrl(text: string): boolean {
  try {
    const { protocol, hostname, pathname, search } = new URL(text);
    const isDatabase = /^\/?\d*$/.test(pathname);
    return (protocol === "redis:" || protocol === "rediss:") && hostname !== "" && isDatabase && search === "";
  } catch {
    return false;
  }
}

const MAX_WORKERS = 128;

const backend = exactlyOneOf(
  z.strictObject({
    ...Object.fromEntries(
      backends.map((definition) => [definition.key, backendSchema(definition).optional().describe(definition.doc)]),
    ),
    weight: weight("requests"),
    protocol: backendProtocol.optional(),
    canary: canarySchema
      .optional()
      .describe(
        "Makes the backend a canary: it receives some requests, and none after too many fail. A canary has no `weight`.",
      ),
    policies: policiesOf("backend").optional().describe("Policies of this backend, which run for each attempt."),
  }),
  backends.map(({ key }) => key),
)
  .refine(...onlyHttpBackends)
  .refine(...onlyHttpCanaries);

const proxyProtocol = z.strictObject({
  version: z.enum(["v1", "v2", "all"]).default("all").describe("The accepted versions. Default: all."),
  mode: z
    .enum(["strict", "optional"])
    .default("strict")
    .describe(
      "`strict` closes connections without a header and from other peers. `optional` accepts them; headers of other peers are not read. Default: strict.",
    ),
});

const gateway = z
  .strictObject({
    port: port().describe("Listener port; 0 selects a free port."),
    protocol: z
      .enum(["HTTP", "HTTPS", "TCP", "TLS"])
      .default("HTTP")
      .describe(
        "`HTTPS` requires `tls`. `TCP` forwards connections to the backends of `tcpRoutes`. `TLS` selects the route by server name (SNI), and terminates TLS if `tls` is set.",
      ),
    address: z.string().min(1).optional().describe("The address to bind. Default: all interfaces."),
    tls: listenerTls
      .optional()
      .describe("Certificates and TLS settings of the listener. Requires `protocol: HTTPS` or `protocol: TLS`."),
    http2: acceptsHttp2,
    forwardProxy: z
      .boolean()
      .default(false)
      .describe(
        "Accepts CONNECT requests and lets routes use `dynamic` backends, so that clients can use the gateway as their HTTP proxy. Default: false.",
      ),
    proxyProtocol: proxyProtocol
      .optional()
      .describe(
        "Reads the client's address from the PROXY protocol header that load balancers in `config.trustedProxies` send.",
      ),
    policies: policiesOf("gateway")
      .optional()
      .describe("Policies for all requests of this listener. Routes add their own."),
  })
  .refine((value) => value.protocol === "TLS" || (value.protocol === "HTTPS") === (value.tls !== undefined), {
    message: "`protocol: HTTPS` and `tls` must be set together",
    path: ["tls"],
  })
  .refine(({ protocol, forwardProxy }) => !isForwarding(protocol) || !forwardProxy, {
    message: "a forward proxy has `protocol: HTTP` or `protocol: HTTPS`",
    path: ["forwardProxy"],
  })
  .refine(({ protocol, policies: own }) => !isForwarding(protocol) || own === undefined, {
    message: "policies apply to HTTP requests: a gateway with `protocol: TCP` or `protocol: TLS` has none",
    path: ["policies"],
  });

export function isForwarding(protocol: string): boolean {
  return protocol === "TCP" || protocol === "TLS";
}

const gatewayNames = z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]);
/** A new instance for each use, because the JSON schema would refer to a shared one. */
const servingGateways = () =>
  gatewayNames
    .optional()
    .describe("The gateways that serve it. Default: the gateway named `default`, or the only gateway.");

export const routeSchema = z.strictObject({
  name: z.string().min(1).max(253).optional().describe("Default: `route<index>`."),
  gateways: servingGateways(),
  hostnames: z
    .array(z.string().min(1))
    .optional()
    .describe("Host names, including wildcards such as `*.example.com`. Default: any."),
  matches: z
    .array(routeMatch)
    .min(1)
    .optional()
    .describe("Conditions; at least one must match. Default: every path, or `/mcp` and `/sse` for MCP backends."),
  backends: z
    .array(backend)
    .refine(...hasOther)
    .optional()
    .describe("The backends, which share the requests by weight."),
  policies: policiesOf("route").optional().describe("Policies of this route."),
});

const addressRange = () =>
  z.string().refine(isAddressRange, "expected an IP address or a CIDR range such as 10.0.0.0/8");

const allowedAddresses = z
  .array(addressRange())
  .default([])
  .describe(
    "Addresses or CIDR ranges that are otherwise refused: those of this machine, private and link-local networks, and metadata services.",
  );

const tcpBackend = exactlyOneOf(
  z.strictObject({
    host: markAddress(
      z.string().superRefine((text, context) => {
        const parsed = parseAddress(text);
        if (!parsed.ok || parsed.target.socketPath !== undefined || text.includes("/"))
          context.addIssue({ code: "custom", message: "expected host:port" });
      }),
    )
      .optional()
      .describe("The server that gets the connections: `host:port`."),
    dynamic: z
      .strictObject({
        port: z.int().min(1).max(65_535).default(443).describe("The port of the servers. Default: 443."),
        allow: allowedAddresses,
      })
      .optional()
      .describe("The server that the client names (SNI). Only with `protocol: TLS` and without `tls`."),
    weight: weight("connections"),
    proxyProtocol: z
      .literal("v2")
      .optional()
      .describe("Sends the addresses of the client in a PROXY protocol header (version 2) before the first bytes."),
  }),
  ["host", "dynamic"],
);

const tcpRoute = z.strictObject({
  name: z.string().min(1).max(253).optional().describe("Default: `tcpRoute<index>`."),
  gateways: gatewayNames
    .optional()
    .describe(
      "The gateways with `protocol: TCP` or `protocol: TLS` that serve it. Default: the one named `default`, or the only one.",
    ),
  hostnames: z
    .array(z.string().regex(SERVER_NAME, "expected a host name, or `*.` and a host name"))
    .min(1)
    .optional()
    .describe(
      "Server names (SNI), including wildcards such as `*.example.com`. Only with `protocol: TLS`. Default: all names that no other route has.",
    ),
  backends: z.array(tcpBackend).min(1).describe("The servers, which share the connections by weight."),
});

const adminAddress = () =>
  z.string().refine(isAdminAddress, "expected ip:port, localhost:port, unix:/path/to/socket, or off").optional();

const processSection = z.strictObject({
  adminAddr: adminAddress().describe(
    "Admin address: `ip:port`, `unix:/path/to/socket`, or `off`. Default: loopback on port 15000. Read at startup only.",
  ),
  statsAddr: adminAddress().describe("An additional address for /metrics and /healthz. Read at startup only."),
  sensitiveHeaders: z
    .array(headerName())
    .optional()
    .describe(
      "Header names to redact in traces and debug output, in addition to the built-in list. Read at startup only.",
    ),
  trustedProxies: z
    .array(addressRange())
    .optional()
    .describe("Addresses or CIDR ranges whose `x-forwarded-*` headers are trusted. Read at startup only."),
  allowConfigEdit: z
    .boolean()
    .optional()
    .describe(
      "Allows the web UI on the admin address to write the configuration file, and operators of the UI to write the lock files of tools. Default: false. Read at startup only.",
    ),
  store: storeSchema
    .optional()
    .describe(
      "Where the gateway stores sessions, budgets, and other state: `memory` (lost at a restart), `{ folder }`, or `{ redis }`. Default: memory. Read at startup only.",
    ),
  cacheMaxBytes: z
    .int()
    .min(0)
    .optional()
    .describe(
      "The size of the response cache of `ai` backends in bytes, for a store in memory or in a folder. The least recently used responses are evicted. Default: 64 MiB, or 4% of the memory if that is less. Read at startup only.",
    ),
  sessionKey: z
    .union([secret().min(32), z.array(secret().min(32)).min(1)])
    .transform((given) => (typeof given === "string" ? [given] : given))
    .optional()
    .describe(
      "The key that signs MCP session IDs: at least 32 characters, the same for all replicas. In a list, the first key signs and all keys are accepted. Default: generated and saved in the store. Read at startup only.",
    ),
  drainTimeout: duration().default(30_000).describe("How long a shutdown waits for in-flight requests. Default: 30s."),
  tunnelIdleTimeout: duration()
    // The default is longer than the usual ping intervals.
    .default(3_600_000)
    .describe(
      "How long an upgraded connection (WebSocket) may be idle in both directions before it is closed. `0s` disables the limit. Default: 1h. Read at startup only.",
    ),
  workers: z
    .union([z.literal("auto"), z.int().min(1).max(MAX_WORKERS)], `expected auto or a number from 1 to ${MAX_WORKERS}`)
    .optional()
    .describe(
      "The number of threads that serve requests, or `auto` for one per processor core. Requires Linux and Node.js 22.12 or newer. Default: 1. Read at startup only.",
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
        .describe("A log filter, for example `info,mcp=trace`. `access=off` disables the access log. Default: info."),
      format: z.enum(["text", "json"]).optional().describe("Default: text."),
      access: z
        .strictObject({
          fields: z
            .record(z.string().min(1).max(100), celSource())
            .optional()
            .describe(
              "Additional fields of each access log line, as names and CEL expressions. They are redacted like traces.",
            ),
          filter: celSource()
            .optional()
            .describe("A CEL expression that selects the requests to log, for example `response.code >= 400`."),
        })
        .optional()
        .describe("The access log: one line per request."),
    })
    .optional()
    .describe("Log settings. Read at startup only, but the admin interface can change the level at run time."),
  tracing: z
    .strictObject({
      keepFailed: z
        .strictObject({
          maxBytes: z
            .int()
            .min(64 * 1024)
            .max(1024 * 1024 * 1024)
            .default(16 * 1024 * 1024)
            .describe("The memory for kept traces in bytes. The oldest traces are removed first. Default: 16777216."),
        })
        .optional()
        .describe("Keeps the full trace of failed and rejected requests for `gwctl explain` and the UI."),
    })
    .optional()
    .describe("Trace settings. Read at startup only."),
  audit: auditSchema
    .optional()
    .describe("Records who called which tool or model with which arguments. Read at startup only."),
  history: historySchema
    .optional()
    .describe(
      "Records every finished request, without bodies, and the usage by hour in a database. Read at startup only.",
    ),
  telemetry: telemetrySchema
    .optional()
    .describe("OpenTelemetry: traces, metrics and log records over OTLP. Read at startup only."),
});

const services = z.record(z.string().min(1), z.union([z.string(), backend]));

/** The sections `mcp` and `llm` have the fields of one backend, on its own port or on one of `gateways`. */
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
          .describe("The name of the gateway under `gateways` that serves this section. Default: a separate listener."),
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
    return [
      [section.name, fields.optional().describe(`Uses a separate listener, or the one that \`gateway\` names. ${doc}`)],
    ];
  }),
);

const ui = z.strictObject({
  gateways: servingGateways(),
  policies: policiesOf("route").optional().describe("Without policies, only loopback clients are accepted."),
  operator: celSource()
    .optional()
    .describe(
      "A CEL expression that is true for operators, who may make changes, for example `'operator' in jwt.roles`. Other users have read-only access. Default: no operators.",
    ),
});

export const configSchema = z.strictObject({
  config: processSection.optional().describe("Settings of the process."),
  gateways: z.record(z.string().min(1), gateway).optional().describe("Listeners by name."),
  routes: z.array(routeSchema).optional().describe("Routes, which select the backends for requests."),
  tcpRoutes: z
    .array(tcpRoute)
    .optional()
    .describe("Routes of gateways with `protocol: TCP` or `protocol: TLS`, which forward connections."),
  services: services
    .optional()
    .describe("The backends of the Services that HTTPRoute documents name: `host:port`, or a backend."),
  ui: ui.optional().describe("Serves the web UI on gateways under `/ui`. It is read-only except for operators."),
  tests: configTests.optional().describe("Tests of this configuration, which `gateway --test` runs."),
  ...sections,
});

export type WrittenConfig = z.output<typeof configSchema>;
export type WrittenRoute = z.output<typeof routeSchema>;
export type WrittenTcpRoute = z.output<typeof tcpRoute>;
export type WrittenGateway = z.output<typeof gateway>;
export type WrittenBackend = z.output<typeof backend>;
export type WrittenProcess = z.output<typeof processSection>;

export function policiesOf(scope: Scope) {
  return z.strictObject(
    Object.fromEntries(policies.filter((policy) => policy.scopes.includes(scope)).map(policyEntry)),
  );
}

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
