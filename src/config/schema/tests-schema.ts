/**
 * Defines the schema of `tests`, which `gateway --test` runs.
 */
import { z } from "zod";
import { headerName } from "../../core/schema.ts";

const MAX_REPEATS = 10_000;

const message = z.strictObject({
  method: z
    .string()
    .min(1)
    .optional()
    .describe("The MCP method. Default: derived from the other fields, for example `tools/call` with `tool`."),
  tool: z.string().min(1).optional().describe("The tool to call, under the name that clients use."),
  arguments: z.record(z.string(), z.unknown()).optional().describe("The arguments of the call."),
  prompt: z.string().min(1).optional().describe("The prompt to get."),
  resource: z.string().min(1).optional().describe("The URI of the resource to read."),
});

export const describedRequest = z.strictObject({
  method: z
    .string()
    .regex(/^[A-Z]+$/, "methods are written in capitals")
    .optional()
    .describe("The request method. Default: `POST` with `mcp`, `model`, or `body`, otherwise `GET`."),
  url: z
    .string()
    .regex(/^(?:https?:\/\/[^/?#]+|\/)/, "expected a path or an http URL")
    .describe("A URL or a path. With several listeners, the port of the URL selects one."),
  listener: z.string().min(1).optional().describe("The name of the listener, if the URL does not select it."),
  headers: z.record(headerName(), z.string()).optional().describe("Request headers."),
  source: z
    .string()
    .min(1)
    .optional()
    .describe(
      "The address of the connection's peer. If it is in `config.trustedProxies`, the header `x-forwarded-for` applies. Default: 127.0.0.1.",
    ),
  body: z.string().optional().describe("The request body."),
  mcp: message.optional().describe("An MCP message instead of `body`."),
  model: z.string().min(1).optional().describe("The model of an LLM call, instead of `body`."),
});

const expectation = z
  .strictObject({
    status: z
      .int()
      .min(100)
      .max(599)
      .optional()
      .describe("The response status. 200 if the request is forwarded to a backend."),
    outcome: z
      .enum(["forwarded", "answered", "refused"])
      .optional()
      .describe("`forwarded` to a backend, `answered` by the gateway (for example a redirect), or `refused`."),
    route: z.string().nullable().optional().describe("The name of the route; null if no route matches."),
    backend: z.string().optional().describe("The name of the backend that receives the request."),
    reason: z.string().min(1).optional().describe("The error code, or a substring of the reason."),
    subject: z.string().optional().describe("The authenticated client, as in the access log, or a substring of it."),
    visible: z.array(z.string().min(1)).optional().describe("MCP tools that the client can see and call."),
    hidden: z.array(z.string().min(1)).optional().describe("MCP tools that the client cannot see or call."),
    headers: z.record(headerName(), z.string()).optional().describe("Response headers with their complete values."),
  })
  .refine((expect) => Object.keys(expect).length > 0, "expected at least one field");

const testName = z.string().min(1).max(200).describe("A sentence that describes the expected behavior.");

export const accessItem = z
  .string()
  .regex(/^(?:route:.+|model:.+|tool:[^/]+\/.+)$/s, "expected `route:name`, `tool:server/name`, or `model:name`");

const accessTest = z.strictObject({
  name: testName,
  principals: z
    .array(
      z.strictObject({
        name: z.string().min(1).describe("The name that `expectAccess` uses."),
        claims: z.record(z.string(), z.unknown()).describe("The claims of a valid token."),
      }),
    )
    .optional()
    .describe("Clients with tokens, in addition to the API keys and users of the configuration."),
  expectAccess: z
    .record(accessItem, z.array(z.string().min(1)))
    .describe(
      "Exactly these clients may use the item, for example `tool:files/delete_file: [alice]`. `anonymous` sends no credential.",
    ),
});

const requestTest = z.strictObject({
  name: testName,
  request: describedRequest.describe("The request, which is not sent to a backend."),
  claims: z
    .record(z.string(), z.unknown())
    .optional()
    .describe("The claims of a valid token that the client sends. Default: no token."),
  repeat: z
    .int()
    .min(1)
    .max(MAX_REPEATS)
    .optional()
    .describe(
      "How many times the request is sent, starting with unused limits. The last result is checked. Default: 1.",
    ),
  expect: expectation.describe("The expected result."),
});

export const configTest = z.union([requestTest, accessTest]);

export const configTests = z.array(configTest);

export const testsDocument = z.strictObject({ tests: configTests });

export type ConfigTest = z.output<typeof configTest>;
export type RequestTest = z.output<typeof requestTest>;
export type AccessTest = z.output<typeof accessTest>;
export type DescribedRequest = z.output<typeof describedRequest>;
