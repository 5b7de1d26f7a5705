/**
 * What may be written under `auth` (and under `params.apiKey` of the short form): where the credential for a provider
 * comes from. Exactly one place; without any, the client's own passes.
 */
import { z } from "zod";
import { exactlyOneOf, livingFilePath, markLocal, secret } from "../../core/schema.ts";

const awsAuth = markLocal(
  z
    .strictObject({
      accessKeyId: z.string().min(1).optional().describe("The id of the access key."),
      secretAccessKey: secret().optional().describe("The secret of the access key."),
      sessionToken: secret().optional().describe("For temporary credentials."),
      profile: livingFilePath().optional().describe("A profile of the shared credentials file, instead of keys."),
    })
    .refine(
      ({ accessKeyId, secretAccessKey, sessionToken, profile }) =>
        profile === undefined ||
        (accessKeyId === undefined && secretAccessKey === undefined && sessionToken === undefined),
      "use either `profile` or keys",
    ),
  { what: "credentials of this machine", isLocal: (value) => !hasOwn(value, "secretAccessKey") },
).describe(
  "Signs requests to Amazon Bedrock (Signature Version 4). `{}`: keys from where AWS's tools look (environment, shared credentials file, web identity, container, instance).",
);

const googleAuth = markLocal(
  z.strictObject({
    keyFile: livingFilePath()
      .optional()
      .describe(
        "The JSON key of a service account (or what `gcloud auth application-default login` wrote). Default: the file in GOOGLE_APPLICATION_CREDENTIALS, else the machine's metadata server.",
      ),
  }),
  { what: "credentials of this machine", isLocal: (value) => !hasOwn(value, "keyFile") },
).describe("An access token for Google Cloud (Vertex), renewed before it ends.");

const azureAuth = markLocal(
  z.strictObject({
    tenantId: z
      .string()
      .regex(/^[A-Za-z0-9.-]+$/, "expected a tenant's id or domain")
      .optional()
      .describe("The Entra ID tenant. Default: AZURE_TENANT_ID."),
    clientId: z.string().min(1).optional().describe("The application or managed identity. Default: AZURE_CLIENT_ID."),
    clientSecret: secret().optional().describe("The application's secret. Default: AZURE_CLIENT_SECRET."),
  }),
  { what: "credentials of this machine", isLocal: (value) => !hasOwn(value, "clientSecret") },
).describe(
  "An access token of Microsoft Entra ID (Azure), renewed before it ends. `{}`: from where Azure's tools look (application, workload identity, managed identity).",
);

function hasOwn(value: unknown, field: string): boolean {
  return typeof value === "object" && value !== null && Object.hasOwn(value, field);
}

export const authSchema = exactlyOneOf(
  z.strictObject({
    key: secret().optional().describe("The provider's key, usually from an environment variable."),
    file: livingFilePath()
      .optional()
      .describe("A file that holds the key; read again when it changes, so that short-lived tokens work."),
    passthrough: z
      .strictObject({})
      .optional()
      .describe("The client's own credential goes to the provider, also where the gateway has read it."),
    aws: awsAuth.optional(),
    google: googleAuth.optional(),
    azure: azureAuth.optional(),
  }),
  ["key", "file", "passthrough", "aws", "google", "azure"],
);

export const apiKeySchema = z
  .union([
    secret(),
    exactlyOneOf(
      z.strictObject({
        file: livingFilePath().optional(),
        passthrough: z.strictObject({}).optional(),
        aws: awsAuth.optional(),
        google: googleAuth.optional(),
        azure: azureAuth.optional(),
      }),
      ["file", "passthrough", "aws", "google", "azure"],
    ),
  ])
  .optional();

export type AuthConfig = z.output<typeof authSchema>;
