/**
 * Defines the configuration of a target that is an HTTP API with an OpenAPI description.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import { exactlyOneOf, filePath, headerName, headerValue, secret, serverUrl } from "../../core/schema.ts";
import { isSameHeader } from "../../http/header-rules.ts";
import { awsSignatureAuth, SIGNATURE_HEADERS } from "../../identity/cloud/cloud-credentials.ts";
import { forwardedHeaderName } from "../transports/forwarded-header.ts";
import { type OpenApiDocument, parseOpenApi } from "./document.ts";

const secretValue = () => headerValue().min(1).meta({ secret: true });

const auth = exactlyOneOf(
  z.strictObject({
    bearer: secretValue().optional().describe("Sent as `Authorization: Bearer …`."),
    basic: z
      .strictObject({ username: z.string().min(1), password: secret() })
      .optional()
      .describe("Sent as basic authentication."),
    header: z
      .strictObject({ name: headerName(), value: secretValue() })
      .optional()
      .describe("A key in a header, for example `x-api-key`."),
    query: z
      .strictObject({ name: z.string().min(1), value: secret() })
      .optional()
      .describe("A key in the query string."),
    aws: awsSignatureAuth.optional(),
  }),
  ["bearer", "basic", "header", "query", "aws"],
);

const selection = z.array(z.string().min(1).max(256));

export const openApiSchema = exactlyOneOf(
  z.strictObject({
    file: filePath().optional().describe("The OpenAPI 3 description, JSON or YAML."),
    url: serverUrl().optional().describe("The URL of the description. It is fetched when the server is first used."),
    server: serverUrl()
      .optional()
      .describe("The base URL of the API. Default: the first of the file's `servers`. Required with `url`."),
    auth: auth.optional().describe("How the gateway authenticates to the API."),
    headers: z
      .record(headerName(), secretValue())
      .default({})
      .describe("Headers for every request to the API. Their values are never shown."),
    forwardHeaders: z
      .array(forwardedHeaderName())
      .default([])
      .describe("Client headers to forward, for example `authorization`. Default: none."),
    include: selection
      .optional()
      .describe("The operations that become tools: `getPet*`, `GET /pets/*`, or `tag:pets`. Default: all."),
    exclude: selection.optional().describe("Operations that do not become tools, even if `include` matches them."),
  }),
  ["file", "url"],
).superRefine(({ url, server, auth: own, headers, forwardHeaders }, context) => {
  const twice = [...Object.keys(headers), ...forwardHeaders].find((name) =>
    SIGNATURE_HEADERS.some((other) => isSameHeader(other, name)),
  );
  if (own?.aws !== undefined && twice !== undefined)
    context.addIssue({
      code: "custom",
      path: ["auth", "aws"],
      message: `the signature sets the header "${twice}", so no other setting may`,
    });
  // A fetched description must not decide where credentials are sent.
  if (url !== undefined && server === undefined)
    context.addIssue({
      code: "custom",
      path: ["server"],
      message: "required field is missing: with `url`, set `server` to the base URL of the API",
    });
});

/**
 * Holds a description that was loaded with the configuration. `toJSON` returns a fingerprint, so that reloads detect a
 * change.
 */
export interface OpenApiSource {
  readonly document: OpenApiDocument;
  toJSON(): string;
}

export type OpenApiConfig = z.output<typeof openApiSchema> & { readonly source?: OpenApiSource };

const YAML = peerInput("file/yaml-description");

/** Throws an Error with the reason if the description is not supported. */
export function openApiSource(text: string): OpenApiSource {
  const fingerprint = createHash("sha256").update(text).digest("hex");
  return { document: parseOpenApi(text, YAML), toJSON: () => fingerprint };
}
