/**
 * The configuration of MCP targets: the same shape under `backends[].mcp` and in the short `mcp` section.
 */
import { z } from "zod";
import {
  duration,
  exactlyOneOf,
  filePath,
  headerName,
  headerValue,
  httpUrl,
  markLocal,
  secret,
} from "../../core/schema.ts";
import { isSameHeader } from "../../http/header-rules.ts";
import { type OpenApiConfig, openApiSchema } from "../openapi/openapi-config.ts";
import { forwardedHeaderName } from "../transports/forwarded-header.ts";
import { identitySchema } from "./identity-config.ts";
import { oauthSchema } from "./oauth-config.ts";
import { toolsSchema } from "./tool-settings.ts";

/** Names stand in tool names (`<target>_<tool>`), URIs (`<target>+<uri>`), log lines and the trace. */
const TARGET_NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;

const stdio = z.strictObject({
  cmd: z.string().min(1).describe("The executable: a path, or a name that is looked up in PATH. No shell is involved."),
  args: z.array(z.string()).default([]).describe("Its arguments, passed unchanged."),
  env: z
    .record(z.string(), z.string().meta({ secret: true }))
    .default({})
    .describe("Variables for the child, beyond the safe ones it always gets. Their values are never shown."),
  cwd: z.string().min(1).optional().describe("Working directory, relative to this file. Default: that of the gateway."),
  inheritEnv: z
    .boolean()
    .default(false)
    .describe(
      "Whether the child gets the whole environment of the gateway, secrets included, instead of the safe part.",
    ),
});

const remote = z.strictObject({
  url: httpUrl().describe("The server's MCP endpoint, for example `https://mcp.example.com/mcp`."),
  headers: z
    .record(headerName(), headerValue().meta({ secret: true }))
    .default({})
    .describe("Headers for every request to the server, for example a key. Their values are never shown."),
  forwardHeaders: z
    .array(forwardedHeaderName())
    .default([])
    .describe("Client headers to forward, for example `authorization`. Default: none."),
});

export const targetSchema = exactlyOneOf(
  z.strictObject({
    name: z
      .string()
      .regex(TARGET_NAME, "expected letters, digits, dots, dashes and underscores, 63 characters at most")
      .describe("The server's name in tool names, logs and the trace."),
    stdio: markLocal(stdio, { what: "a process" })
      .optional()
      .describe("A server started as a child process that speaks over its standard streams."),
    mcp: remote
      .extend({
        oauth: oauthSchema
          .optional()
          .describe(
            "The server wants a login of its own: each user connects an account, and the gateway holds the tokens.",
          ),
        identity: identitySchema
          .optional()
          .describe("How the server learns who the caller is: a token, an exchanged token, or headers."),
      })
      .optional()
      .describe("A remote server that speaks streamable HTTP."),
    sse: remote
      .optional()
      .describe("A remote server of the old HTTP+SSE transport; the URL is that of its event stream."),
    openapi: openApiSchema.optional().describe("An HTTP API with an OpenAPI 3 description: each operation is a tool."),
    tools: toolsSchema
      .optional()
      .describe("Which of its tools clients get, under which names, and what fills their arguments."),
    spares: z
      .int()
      .min(0)
      .max(8)
      .optional()
      .describe("Processes started ahead of sessions (`stdio`), so that these do not wait for a start. Default: none."),
    shared: z
      .boolean()
      .default(false)
      .describe("One process or connection for all sessions. Only for servers that keep nothing per client."),
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
          message: "a target with `oauth` has a connection per user",
        });
      if (mcp.forwardHeaders.includes("authorization") || Object.hasOwn(mcp.headers, "authorization"))
        context.addIssue({
          code: "custom",
          path: [i, "mcp", "oauth"],
          message: "with `oauth` the gateway writes the authorization header itself",
        });
    });
    targets.forEach(({ shared, mcp }, i) => {
      const problem = identityProblem(shared, mcp);
      if (problem !== undefined) context.addIssue({ code: "custom", path: [i, "mcp", "identity"], message: problem });
    });
    targets.forEach(({ shared, mcp, sse, openapi }, i) => {
      // A shared connection has one identity: there is no client whose headers it could carry.
      if (!shared || ((mcp ?? sse ?? openapi)?.forwardHeaders.length ?? 0) === 0) return;
      context.addIssue({
        code: "custom",
        path: [i, "shared"],
        message: "a shared target cannot forward headers of clients",
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
  .describe("MCP servers. Several are offered to clients as one.");

function identityProblem(shared: boolean, mcp: TargetConfig["mcp"]): string | undefined {
  if (mcp?.identity === undefined) return undefined;
  const { token, exchange, headers = {} } = mcp.identity;
  if (shared) return "a shared target has no caller: it cannot be told who it is";
  if (mcp.oauth !== undefined && (token ?? exchange) !== undefined)
    return "`oauth` is another way to the server's token";
  const own = [...Object.keys(headers), ...((token ?? exchange) === undefined ? [] : ["authorization"])];
  const others = [...mcp.forwardHeaders, ...Object.keys(mcp.headers)];
  const twice = own.find((name) => others.some((other) => isSameHeader(other, name)));
  return twice === undefined ? undefined : `the header "${twice}" is set in \`headers\` or \`forwardHeaders\` too`;
}

/** What stands beside `targets`, in `backends[].mcp` and in the `mcp` section. */
export const mcpSettingsShape = {
  prefixMode: z
    .enum(["conditional", "always", "never"])
    .default("conditional")
    .describe("When names have the server's name as a prefix: only with several servers, always, or never."),
  toolMode: z
    .enum(["all", "search"])
    .default("all")
    .describe("`search`: clients get three tools that find, describe and call the others, instead of a long list."),
  statefulMode: z
    .enum(["stateful", "stateless"])
    .default("stateful")
    .describe(
      "`stateless`: clients of the 2025 era get no session; each request stands alone and may go to any replica. Servers cannot ask them anything.",
    ),
  vaultKey: secret()
    .min(32)
    .optional()
    .describe("Encrypts the tokens that users connect (`oauth`), at least 32 characters; or use `vaultKeyFile`."),
  vaultKeyFile: filePath().optional().describe("A file with the key."),
  toolsLock: filePath()
    .optional()
    .describe("A file written by `gwctl mcp lock`. Tools that differ from it are withheld until they are accepted."),
  failureMode: z
    .enum(["failOpen", "failClosed"])
    .default("failOpen")
    .describe("With several servers: if one fails, the others keep working, or the request fails."),
  sessionIdleTtl: duration()
    .prefault("30m")
    .describe("A session without requests and open streams is ended after this time."),
  parkAfter: duration()
    .prefault("60s")
    .describe(
      "The child processes of a session whose client closed its event stream and is silent are stopped after this time; its next request starts them again. `0s`: never.",
    ),
  requestTimeout: duration()
    .prefault("300s")
    .describe("How long a server may take without a message; progress restarts the time."),
  maxSessions: z.int().min(1).default(10_000).describe("Maximum number of sessions; further ones get 503."),
  maxSessionsPerClient: z
    .int()
    .min(1)
    .optional()
    .describe(
      "Sessions of one client: a principal, or an address (IPv6: a /64 network) if there is no authentication. Default: half of `maxSessions`.",
    ),
  maxChildren: z
    .int()
    .min(1)
    .default(256)
    .describe("Child processes at a time. An idle session of the client that holds the most sessions makes room."),
  maxChildrenPerClient: z
    .int()
    .min(1)
    .optional()
    .describe(
      "Child processes of one client. Default: half of `maxChildren`, but at least one for each `stdio` target.",
    ),
  maxConcurrentStarts: z
    .int()
    .min(1)
    .optional()
    .describe("Children that start at a time; others wait in line, up to 60 s. Default: four per CPU."),
  maxRequestBytes: z
    .int()
    .min(1024)
    .max(64 * 1024 * 1024)
    .default(4 * 1024 * 1024)
    .describe("The largest message of a client. It is parsed whole: much more than the default delays other requests."),
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
    .describe("The largest message of a server, for example a result with images. The call fails beyond."),
  allowedHosts: z
    .array(z.string().min(1))
    .default([])
    .describe(
      "Host names, besides loopback ones and those of the route, that requests over a loopback address may name.",
    ),
} as const;

export const mcpSchema = z.strictObject({ targets: targetsSchema, ...mcpSettingsShape });

export type McpConfig = Omit<z.output<typeof mcpSchema>, "targets"> & { readonly targets: readonly TargetConfig[] };
