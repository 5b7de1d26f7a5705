/**
 * Defines the configuration of the gateway's own credentials at AWS, Google Cloud, and Azure, and obtains them.
 */

import { readFileSync } from "node:fs";
import { z } from "zod";
import type { BackendEnv } from "../../core/backend.ts";
import { machineOf } from "../../core/policy.ts";
import { markLocal, secret, watchedFilePath } from "../../core/schema.ts";
import { type AwsKeys, obtainAwsKeys } from "./aws.ts";
import { type EntraSettings, entraTokenSource } from "./azure.ts";
import { googleKeySource, googleMetadataSource } from "./google.ts";
import { createRenewable, fixedValue, type Renewable } from "./renewable.ts";
import type { TokenSource } from "./token-request.ts";

const MACHINE_CREDENTIALS = "use credentials of this machine";

export type CloudEnv = Pick<BackendEnv, "clock" | "fetch" | "logger" | "machine" | "acquire">;

export interface CredentialOwner {
  /** Names the provider or backend in log lines. */
  readonly name: string;
  /** Names the part of the log. */
  readonly area: string;
}

const awsShape = {
  accessKeyId: z.string().min(1).optional().describe("The access key ID."),
  secretAccessKey: secret().optional().describe("The secret access key."),
  sessionToken: secret().optional().describe("The session token of temporary credentials."),
  profile: watchedFilePath().optional().describe("A profile in the shared credentials file, instead of keys."),
};
const awsFields = z.strictObject(awsShape);
type AwsConfig = z.output<typeof awsFields>;

export function awsAuth<Extra extends z.ZodRawShape>(extra: Extra) {
  return markLocal(
    z.strictObject({ ...awsShape, ...extra }).refine((value) => {
      const { accessKeyId, secretAccessKey, sessionToken, profile } = value as AwsConfig;
      const hasKeys = (accessKeyId ?? secretAccessKey ?? sessionToken) !== undefined;
      return profile === undefined || !hasKeys;
    }, "use either `profile` or keys"),
    { what: "credentials of this machine", isLocal: (value) => !hasOwn(value, "secretAccessKey") },
  ).describe(
    "Signs requests with AWS Signature Version 4. Without keys, it uses the default AWS credential chain (environment, shared credentials file, web identity, container, instance).",
  );
}

/** Credentials for any AWS service, with what its signatures name. */
export const awsSignatureAuth = awsAuth({
  region: z
    .string()
    .regex(/^[a-z0-9-]+$/, "expected a region such as us-east-1")
    .describe("The AWS region of the backend."),
  service: z
    .string()
    .regex(/^[a-z0-9-]+$/, "expected a service such as execute-api")
    .describe("The name of the AWS service in signatures, for example `execute-api` or `bedrock-agentcore`."),
});

/** A client's own headers of this kind must not reach AWS. */
export const SIGNATURE_HEADERS = ["authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"];

const googleFields = z.strictObject({
  keyFile: watchedFilePath()
    .optional()
    .describe(
      "The JSON key file of a service account, or the file that `gcloud auth application-default login` writes. Default: the file in GOOGLE_APPLICATION_CREDENTIALS, otherwise the metadata server of the machine.",
    ),
});

export const googleAuth = markLocal(googleFields, {
  what: "credentials of this machine",
  isLocal: (value) => !hasOwn(value, "keyFile"),
}).describe("An access token for Google Cloud, renewed before it expires.");

const azureShape = {
  tenantId: z
    .string()
    .regex(/^[A-Za-z0-9.-]+$/, "expected a tenant's id or domain")
    .optional()
    .describe("The Entra ID tenant. Default: AZURE_TENANT_ID."),
  clientId: z.string().min(1).optional().describe("The application or managed identity. Default: AZURE_CLIENT_ID."),
  clientSecret: secret().optional().describe("The application's secret. Default: AZURE_CLIENT_SECRET."),
};

export function azureAuth<Extra extends z.ZodRawShape>(extra: Extra) {
  return markLocal(z.strictObject({ ...azureShape, ...extra }), {
    what: "credentials of this machine",
    isLocal: (value) => !hasOwn(value, "clientSecret"),
  }).describe(
    "An access token from Microsoft Entra ID (Azure), renewed before it expires. `{}` uses the default Azure credential chain (application, workload identity, managed identity).",
  );
}

function hasOwn(value: unknown, field: string): boolean {
  return typeof value === "object" && value !== null && Object.hasOwn(value, field);
}

export function awsKeys(
  { accessKeyId, secretAccessKey, sessionToken, profile }: AwsConfig,
  { name, area }: CredentialOwner,
  region: string,
  env: CloudEnv,
): Renewable<AwsKeys> {
  if (accessKeyId !== undefined && secretAccessKey !== undefined)
    return fixedValue({ accessKeyId, secretAccessKey, sessionToken });
  if (accessKeyId !== undefined || secretAccessKey !== undefined || sessionToken !== undefined)
    throw new Error("`accessKeyId` and `secretAccessKey` belong together");
  const { clock, fetch } = env;
  const { environment: variables } = machineOf(env, MACHINE_CREDENTIALS);
  return env.acquire(`${area}-credential aws ${name}`, { profile, region }, () =>
    createRenewable({
      name: `AWS keys for ${name}`,
      clock,
      logger: env.logger.for(area),
      obtain: () => obtainAwsKeys({ profile, region, variables, clock, fetch }),
    }),
  );
}

export function googleToken(
  config: z.output<typeof googleFields>,
  { name, area }: CredentialOwner,
  env: CloudEnv,
): Renewable<string> {
  const { clock, fetch } = env;
  const { environment, resolvePath } = machineOf(
    env,
    config.keyFile === undefined ? MACHINE_CREDENTIALS : "name files",
  );
  const path =
    config.keyFile === undefined
      ? environment.GOOGLE_APPLICATION_CREDENTIALS || undefined
      : resolvePath(config.keyFile);
  const keySource = (file: string): TokenSource => googleKeySource(readFileSync(file, "utf8"), { clock, fetch });
  // Reading the file at load makes an invalid file a configuration error. Keys are rotated, so the file is read again
  // for each token.
  if (path !== undefined) keySource(path);
  const obtain: TokenSource =
    path === undefined
      ? googleMetadataSource(environment.GCE_METADATA_HOST, { clock, fetch })
      : async () => keySource(path)();
  return env.acquire(`${area}-credential google ${name}`, { path }, () =>
    createRenewable({ name: `Google token for ${name}`, clock, logger: env.logger.for(area), obtain }),
  );
}

export function entraToken(config: EntraSettings, { name, area }: CredentialOwner, env: CloudEnv): Renewable<string> {
  const { clock, fetch } = env;
  const isOwn = config.clientSecret !== undefined;
  const environment = isOwn ? (env.machine?.environment ?? {}) : machineOf(env, MACHINE_CREDENTIALS).environment;
  const obtain = entraTokenSource(config, environment, { clock, fetch });
  return env.acquire(`${area}-credential azure ${name}`, config, () =>
    createRenewable({ name: `Entra ID token for ${name}`, clock, logger: env.logger.for(area), obtain }),
  );
}
