/**
 * Defines the configuration of MCP targets, which is the same under `backends[].mcp` and in the short `mcp` section.
 */
import { z } from "zod";
import {
  celSource,
  duration,
  exactlyOneOf,
  filePath,
  headerName,
  headerValue,
  httpUrl,
  markLocal,
  secret,
  serverUrl,
} from "../../core/schema.ts";
import { isSameHeader } from "../../http/header-rules.ts";
import { awsSignatureAuth, SIGNATURE_HEADERS } from "../../identity/cloud/cloud-credentials.ts";
import { guardSchema } from "../../llm/guard-config.ts";
import { type OpenApiConfig, openApiSchema } from "../openapi/openapi-config.ts";
import { forwardedHeaderName } from "../transports/forwarded-header.ts";

const TOKEN_TYPE = "urn:ietf:params:oauth:token-type:";

const exchangeSchema = z
  .strictObject({
    tokenUrl: serverUrl().describe("The token endpoint of the identity provider."),
    clientId: z.string().min(1).describe("The gateway's client id at the identity provider."),
    clientSecret: secret().optional().describe("The client secret, if the client has one."),
    audience: z.string().min(1).optional().describe("The server's identifier at the identity provider."),
    resource: httpUrl().optional().describe("The server's URL, for identity providers that identify servers by URL."),
    scopes: z
      .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/))
      .optional()
      .describe("Requested scopes. Default: those that the identity provider grants."),
    subjectTokenType: z
      .enum(["access_token", "jwt", "id_token"])
      .default("access_token")
      .transform((name) => `${TOKEN_TYPE}${name}`)
      .describe("The type of the caller's token, as sent to the identity provider."),
  })
  .refine(({ audience, resource }) => audience !== undefined || resource !== undefined, {
    message: "set `audience` or `resource`: an unrestricted token would be valid for other servers too",
  });

export const identitySchema = z
  .strictObject({
    token: z
      .literal(true)
      .optional()
      .describe("Send the caller's own token. Use this only for servers in the token's audience."),
    exchange: exchangeSchema
      .optional()
      .describe("Send a token that the identity provider issues in exchange for the caller's token (RFC 8693)."),
    headers: z
      .record(forwardedHeaderName(), celSource())
      .optional()
      .describe("Headers with CEL values, for example `x-user: jwt.sub`. Values that the client sends are removed."),
  })
  .superRefine(({ token, exchange, headers }, context) => {
    if (token !== undefined && exchange !== undefined)
      context.addIssue({ code: "custom", message: "use only one of `token` and `exchange`" });
    if (token === undefined && exchange === undefined && Object.keys(headers ?? {}).length === 0)
      context.addIssue({ code: "custom", message: "set `token`, `exchange` or `headers`" });
    if ((token ?? exchange) !== undefined && Object.hasOwn(headers ?? {}, "authorization"))
      context.addIssue({ code: "custom", path: ["headers"], message: "the token is in the authorization header" });
  });

export type IdentityConfig = z.output<typeof identitySchema>;
export type ExchangeConfig = z.output<typeof exchangeSchema>;

export const oauthSchema = z
  .strictObject({
    connectUrl: httpUrl().describe(
      "The public URL of the route with the `mcpLogins` backend, for example `https://gateway.example.com/connect`. Users connect their accounts there.",
    ),
    issuer: serverUrl()
      .optional()
      .describe(
        "The authorization server. Default: the one in the server's metadata. Set it if you set `clientSecret`.",
      ),
    resource: httpUrl()
      .optional()
      .describe("The server's identifier at the authorization server. Default: the one in its metadata, or its URL."),
    clientId: z
      .string()
      .min(1)
      .optional()
      .describe("The gateway's client id at the authorization server. Default: the gateway registers itself."),
    clientSecret: secret().optional().describe("The client secret, if the client has one."),
    scopes: z
      .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/))
      .optional()
      .describe("Requested scopes. Default: those in the server's metadata."),
  })
  .refine(({ clientId, clientSecret }) => clientSecret === undefined || clientId !== undefined, {
    path: ["clientSecret"],
    message: "a secret needs a `clientId`",
  });

export type OauthConfig = z.output<typeof oauthSchema>;

/**
 * The specification recommends this length and these characters (2025-11-25, tools). The slash is allowed in addition.
 */
const TOOL_NAME = /^[A-Za-z0-9_./-]{1,128}$/;

const json: z.ZodType<unknown> = z.unknown();

const argument = z
  .strictObject({
    default: json.optional().describe("Sent if the client omits the argument. Clients see it in the schema."),
    value: json.optional().describe("Always sent. Clients neither see nor set the argument."),
    expression: celSource()
      .optional()
      .describe(
        "A CEL expression for the value that is always sent, for example `jwt.email`. Clients neither see nor set the argument. A call for which it has no value is denied.",
      ),
    hidden: z.boolean().optional().describe("`true`: clients neither see nor set the argument."),
    description: z.string().optional().describe("Replaces the server's description of the argument."),
  })
  .superRefine((value, context) => {
    const sources = (["default", "value", "expression"] as const).filter((key) => value[key] !== undefined);
    if (sources.length > 1)
      context.addIssue({ code: "custom", message: `only one of ${sources.join(" and ")} may be given` });
    if (value.hidden === false && (value.value !== undefined || value.expression !== undefined))
      context.addIssue({ code: "custom", path: ["hidden"], message: "an argument with a fixed value is hidden" });
  });

const override = z.strictObject({
  name: z
    .string()
    .regex(TOOL_NAME, "expected letters, digits, `_`, `-`, `.` and `/`, 128 characters at most")
    .optional()
    .describe("The name that clients see. Rules, limits, and logs use it too."),
  title: z.string().optional().describe("Replaces the server's title."),
  description: z.string().optional().describe("Replaces the server's description."),
  arguments: z
    .record(z.string().min(1), argument)
    .optional()
    .describe("Changes to arguments, by the server's argument names."),
  timeout: duration().optional().describe("The total time that a call may take."),
});

const resultGuard = guardSchema(
  "result",
  z
    .strictObject({ body: z.string().min(1).describe("The text that clients get instead of the result.") })
    .optional()
    .describe("The response to a rejected result."),
);

const argumentGuard = guardSchema(
  "call",
  z
    .strictObject({ body: z.string().min(1).describe("The message of the error that clients get.") })
    .optional()
    .describe("The response to a rejected call."),
);

export type ResultGuardConfig = z.output<typeof resultGuard>;

const patterns = z.array(z.string().min(1).max(128));

export const toolsSchema = z
  .strictObject({
    allow: patterns.optional().describe("The only tools that clients can see and call. `*` matches any characters."),
    deny: patterns.optional().describe("Tools that clients can neither see nor call, even if `allow` matches them."),
    override: z
      .record(z.string().min(1), override)
      .optional()
      .describe("Changes to individual tools, by the server's tool names."),
    argumentGuard: z
      .array(argumentGuard)
      .min(1)
      .optional()
      .describe("Masks or rejects text in the arguments of tool calls, before the server receives them."),
    resultGuard: z
      .array(resultGuard)
      .min(1)
      .optional()
      .describe("Masks or rejects text that the server sends, as `promptGuard` does in LLM responses."),
    timeout: duration()
      .optional()
      .describe("The total time that a call of any tool may take. Default: `requestTimeout`."),
  })
  .superRefine(({ override: overrides = {} }, context) => {
    const taken = new Map<string, string>();
    for (const [tool, { name }] of Object.entries(overrides)) {
      const shown = name ?? tool;
      const other = taken.get(shown);
      if (other !== undefined)
        context.addIssue({
          code: "custom",
          path: ["override", tool, "name"],
          message: `"${shown}" is the name of "${other}" too`,
        });
      taken.set(shown, tool);
    }
  });

export type ToolsConfig = z.output<typeof toolsSchema>;
export type ToolOverride = z.output<typeof override>;
export type ArgumentOverride = z.output<typeof argument>;

/** Restricts target names, because they appear in tool names and URIs. */
const TARGET_NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;

const stdio = z.strictObject({
  cmd: z.string().min(1).describe("The executable: a path, or a name to look up in PATH. No shell is involved."),
  args: z.array(z.string()).default([]).describe("Its arguments, passed unchanged."),
  env: z
    .record(z.string(), z.string().meta({ secret: true }))
    .default({})
    .describe(
      "Environment variables for the child, in addition to the safe ones that it always gets. Values are never shown.",
    ),
  cwd: z
    .string()
    .min(1)
    .optional()
    .describe("The working directory, relative to this file. Default: that of the gateway."),
  inheritEnv: z
    .boolean()
    .default(false)
    .describe(
      "Whether the child gets all environment variables of the gateway, including secrets, instead of the safe ones.",
    ),
});

const remote = z.strictObject({
  url: serverUrl().describe("The server's MCP endpoint, for example `https://mcp.example.com/mcp`."),
  headers: z
    .record(headerName(), headerValue().meta({ secret: true }))
    .default({})
    .describe("Headers for every request to the server, for example an API key. Values are never shown."),
  forwardHeaders: z
    .array(forwardedHeaderName())
    .default([])
    .describe("Client headers to forward, for example `authorization`. Default: none."),
  aws: awsSignatureAuth.optional(),
});

export const targetSchema = exactlyOneOf(
  z.strictObject({
    name: z
      .string()
      .regex(TARGET_NAME, "expected letters, digits, dots, dashes and underscores, 63 characters at most")
      .describe("The server's name in tool names, logs, and the trace."),
    stdio: markLocal(stdio, { what: "a process" })
      .optional()
      .describe("A server that runs as a child process and communicates over its standard streams."),
    mcp: remote
      .extend({
        oauth: oauthSchema
          .optional()
          .describe(
            "The server requires its own login: each user connects an account, and the gateway stores the tokens.",
          ),
        identity: identitySchema
          .optional()
          .describe(
            "How the gateway sends the caller's identity to the server: a token, an exchanged token, or headers.",
          ),
      })
      .optional()
      .describe("A remote server with the streamable HTTP transport."),
    sse: remote
      .optional()
      .describe("A remote server with the deprecated HTTP+SSE transport. The URL is that of its event stream."),
    openapi: openApiSchema
      .optional()
      .describe("An HTTP API with an OpenAPI 3 description. Each operation becomes a tool."),
    tools: toolsSchema
      .optional()
      .describe("Selects the tools that clients get, and changes their names, descriptions, and arguments."),
    spares: z
      .int()
      .min(0)
      .max(8)
      .optional()
      .describe(
        "Processes started ahead of sessions (`stdio`), so that new sessions do not wait for one. Default: none.",
      ),
    shared: z
      .boolean()
      .default(false)
      .describe("Use one process or connection for all sessions. Only for servers that store no state per client."),
  }),
  ["stdio", "mcp", "sse", "openapi"],
);

export type TargetConfig = Omit<z.output<typeof targetSchema>, "openapi"> & {
  readonly openapi?: OpenApiConfig | undefined;
};

export const targetsSchema = z
  .array(targetSchema)
  .min(1)
  .superRefine((targets, context) => {
    const names = targets.map((target) => target.name);
    targets.forEach(({ shared, stdio: child, spares }, i) => {
      if (spares !== undefined && (shared || child === undefined))
        context.addIssue({
          code: "custom",
          path: [i, "spares"],
          message: shared ? "a shared target has one process" : "only `stdio` targets have processes",
        });
    });
    targets.forEach(({ shared, mcp }, i) => {
      if (mcp?.oauth === undefined) return;
      if (shared)
        context.addIssue({
          code: "custom",
          path: [i, "shared"],
          message: "a target with `oauth` has one connection per user, so it cannot be shared",
        });
      if (mcp.forwardHeaders.includes("authorization") || Object.hasOwn(mcp.headers, "authorization"))
        context.addIssue({
          code: "custom",
          path: [i, "mcp", "oauth"],
          message: "with `oauth`, the gateway sets the authorization header",
        });
    });
    targets.forEach(({ shared, mcp }, i) => {
      const problem = identityProblem(shared, mcp);
      if (problem !== undefined) context.addIssue({ code: "custom", path: [i, "mcp", "identity"], message: problem });
    });
    targets.forEach(({ mcp, sse }, i) => {
      const problem = signatureProblem(mcp ?? sse);
      if (problem !== undefined)
        context.addIssue({ code: "custom", path: [i, mcp ? "mcp" : "sse", "aws"], message: problem });
    });
    targets.forEach(({ shared, mcp, sse, openapi }, i) => {
      // All clients use a shared connection, so no single client's headers can be forwarded.
      if (!shared || ((mcp ?? sse ?? openapi)?.forwardHeaders.length ?? 0) === 0) return;
      context.addIssue({
        code: "custom",
        path: [i, "shared"],
        message: "a shared target cannot forward client headers",
      });
    });
    names.forEach((name, i) => {
      if (names.indexOf(name) !== i)
        context.addIssue({ code: "custom", path: [i, "name"], message: `the name "${name}" is used twice` });
      const longer = names.find((other) => other.startsWith(`${name}_`));
      if (longer)
        context.addIssue({
          code: "custom",
          path: [i, "name"],
          message: `"${name}_" begins the name "${longer}": tool names would be ambiguous`,
        });
    });
  })
  .describe("MCP servers. Clients see several servers as one.");

function identityProblem(shared: boolean, mcp: TargetConfig["mcp"]): string | undefined {
  if (mcp?.identity === undefined) return undefined;
  const { token, exchange, headers = {} } = mcp.identity;
  if (shared) return "a shared target has no single caller, so it cannot receive the caller's identity";
  if (mcp.oauth !== undefined && (token ?? exchange) !== undefined)
    return "use only one of `oauth` and an identity token: both set the authorization header";
  const own = [...Object.keys(headers), ...((token ?? exchange) === undefined ? [] : ["authorization"])];
  const others = [...mcp.forwardHeaders, ...Object.keys(mcp.headers)];
  const twice = own.find((name) => others.some((other) => isSameHeader(other, name)));
  return twice === undefined ? undefined : `the header "${twice}" is set in \`headers\` or \`forwardHeaders\` too`;
}

function signatureProblem(remote: TargetConfig["mcp"]): string | undefined {
  if (remote?.aws === undefined) return undefined;
  const { identity, oauth, headers, forwardHeaders } = remote;
  if (oauth !== undefined || (identity?.token ?? identity?.exchange) !== undefined)
    return "use only one of `aws`, `oauth`, and an identity token: all set the authorization header";
  const names = [...Object.keys(headers), ...forwardHeaders, ...Object.keys(identity?.headers ?? {})];
  const twice = names.find((name) => SIGNATURE_HEADERS.some((other) => isSameHeader(other, name)));
  return twice === undefined ? undefined : `the signature sets the header "${twice}", so no other setting may`;
}

export const mcpSettingsShape = {
  prefixMode: z
    .enum(["conditional", "always", "never"])
    .default("conditional")
    .describe("When names are prefixed with the server's name: only with several servers, always, or never."),
  toolMode: z
    .enum(["all", "search"])
    .default("all")
    .describe("`search`: clients get three tools that find, describe, and call the others, instead of a long list."),
  statefulMode: z
    .enum(["stateful", "stateless"])
    .default("stateful")
    .describe(
      "`stateless`: legacy clients (2025 and older) get no session. Each request is independent and may go to any replica. Servers cannot send requests to these clients.",
    ),
  vaultKey: secret()
    .min(32)
    .optional()
    .describe(
      "Encrypts the tokens of connected accounts (`oauth`). At least 32 characters. Alternative: `vaultKeyFile`.",
    ),
  vaultKeyFile: filePath().optional().describe("A file that contains the vault key."),
  toolsLock: filePath()
    .optional()
    .describe("A file written by `gwctl mcp lock`. Tools that differ from it are withheld until they are accepted."),
  failureMode: z
    .enum(["failOpen", "failClosed"])
    .default("failOpen")
    .describe("With several servers: if one fails, the others stay available (`failOpen`), or the request fails."),
  startWait: duration()
    .prefault("30s")
    .describe(
      "With several servers and `failOpen`: how long the lists of a new session wait for servers that are still starting. Servers that take longer are left out, logged, and announced with `list_changed` when they are up. Failed servers cause no wait.",
    ),
  sessionIdleTtl: duration()
    .prefault("30m")
    .describe("A session ends after this time without requests or open streams."),
  parkAfter: duration()
    .prefault("60s")
    .describe(
      "If a client closes its event stream and sends no requests for this time, the gateway stops the session's child processes. The next request starts them again. `0s`: never.",
    ),
  requestTimeout: duration()
    .prefault("300s")
    .describe("How long a server may take without sending a message. Progress notifications restart the timeout."),
  maxSessions: z.int().min(1).default(10_000).describe("Maximum number of sessions. Requests for more get status 503."),
  maxSessionsPerClient: z
    .int()
    .min(1)
    .optional()
    .describe(
      "Maximum number of sessions per client: a principal, or an IP address (IPv6: a /64 network) without authentication. Default: half of `maxSessions`.",
    ),
  maxChildren: z
    .int()
    .min(1)
    .default(256)
    .describe(
      "Maximum number of child processes. When it is reached, an idle session of the client with the most sessions is ended.",
    ),
  maxChildrenPerClient: z
    .int()
    .min(1)
    .optional()
    .describe(
      "Maximum number of child processes per client. Default: half of `maxChildren`, but at least one for each `stdio` target.",
    ),
  maxConcurrentStarts: z
    .int()
    .min(1)
    .optional()
    .describe("Child processes that start at the same time. Others are queued for up to 60 s. Default: four per CPU."),
  maxRequestBytes: z
    .int()
    .min(1024)
    .max(64 * 1024 * 1024)
    .default(4 * 1024 * 1024)
    .describe(
      "The maximum size of a message from a client. Messages are parsed whole, so a much larger limit can delay other requests.",
    ),
  maxInitializeBytes: z
    .int()
    .min(1024)
    .max(1024 * 1024)
    .default(64 * 1024)
    .describe(
      "The largest `initialize` request, and the largest client name and capabilities of a 2026-07-28 request. Sessions retain them; larger ones get the JSON-RPC error -32602.",
    ),
  maxMessageBytes: z
    .int()
    .min(1024)
    .max(256 * 1024 * 1024)
    .default(32 * 1024 * 1024)
    .describe(
      "The maximum size of a message from a server, for example a result with images. Calls with larger results fail.",
    ),
  allowedHosts: z
    .array(z.string().min(1))
    .default([])
    .describe(
      "Host names that are accepted in requests to a loopback address, in addition to loopback names and those of the route.",
    ),
} as const;

export const mcpSchema = z.strictObject({ targets: targetsSchema, ...mcpSettingsShape });

export type McpConfig = Omit<z.output<typeof mcpSchema>, "targets"> & { readonly targets: readonly TargetConfig[] };
