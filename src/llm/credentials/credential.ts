/**
 * Compiles the configured credential of a provider.
 */
import { readFileSync } from "node:fs";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import type { BackendEnv } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import { exactlyOneOf, markLocal, secret, watchedFilePath } from "../../core/schema.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { LlmError } from "../request/llm-errors.ts";
import type { CredentialForm } from "../request/provider.ts";
import { AWS_SOURCES, type AwsKeys, obtainAwsKeys } from "./aws.ts";
import { entraTokenSource } from "./azure.ts";
import { googleKeySource, googleMetadataSource } from "./google.ts";
import { createRenewable, fixedValue, type Renewable } from "./renewable.ts";
import type { TokenSource } from "./token-request.ts";

export type Credential =
  | { readonly kind: "key"; read(): string }
  | { readonly kind: "token"; readonly token: Renewable<string> }
  | { readonly kind: "aws"; readonly keys: Renewable<AwsKeys> }
  /** If `explicit` is true, a credential that an authentication policy consumed is forwarded too. */
  | { readonly kind: "client"; readonly explicit: boolean };

const FILE_CHECK_MS = 5_000;

export type CredentialEnv = Pick<BackendEnv, "clock" | "fetch" | "logger" | "resolvePath" | "environment" | "acquire">;

export function compileCredential(
  config: AuthConfig | undefined,
  name: string,
  region: string,
  env: CredentialEnv,
): Credential {
  if (config === undefined) return { kind: "client", explicit: false };
  if (config.passthrough) return { kind: "client", explicit: true };
  if (config.aws) return { kind: "aws", keys: awsKeys(config.aws, name, region, env) };
  if (config.google) return { kind: "token", token: googleToken(config.google, name, env) };
  if (config.azure) return { kind: "token", token: entraToken(config.azure, name, env) };
  if (config.key !== undefined) {
    const key = config.key;
    return { kind: "key", read: () => key };
  }
  return { kind: "key", read: fileReader(env.resolvePath(config.file ?? ""), env.clock) };
}

function awsKeys(
  config: NonNullable<AuthConfig["aws"]>,
  name: string,
  region: string,
  env: CredentialEnv,
): Renewable<AwsKeys> {
  const { accessKeyId, secretAccessKey, sessionToken, profile } = config;
  if (accessKeyId !== undefined && secretAccessKey !== undefined)
    return fixedValue({ accessKeyId, secretAccessKey, sessionToken });
  if (accessKeyId !== undefined || secretAccessKey !== undefined || sessionToken !== undefined)
    throw new Error("`accessKeyId` and `secretAccessKey` belong together");
  const { clock, fetch, environment: variables } = env;
  return env.acquire(`ai-credential aws ${name}`, { profile, region }, () =>
    createRenewable({
      name: `AWS keys for ${name}`,
      clock,
      logger: env.logger.for("llm"),
      obtain: () => obtainAwsKeys({ profile, region, variables, clock, fetch }),
    }),
  );
}

function googleToken(config: NonNullable<AuthConfig["google"]>, name: string, env: CredentialEnv): Renewable<string> {
  const { environment, clock, fetch } = env;
  const path =
    config.keyFile === undefined
      ? environment.GOOGLE_APPLICATION_CREDENTIALS || undefined
      : env.resolvePath(config.keyFile);
  const keySource = (file: string): TokenSource => googleKeySource(readFileSync(file, "utf8"), { clock, fetch });
  // Reading the file at load makes an invalid file a configuration error. Keys are rotated, so the file is read again
  // for each token.
  if (path !== undefined) keySource(path);
  const obtain: TokenSource =
    path === undefined
      ? googleMetadataSource(environment.GCE_METADATA_HOST, { clock, fetch })
      : async () => keySource(path)();
  return env.acquire(`ai-credential google ${name}`, { path }, () =>
    createRenewable({ name: `Google token for ${name}`, clock, logger: env.logger.for("llm"), obtain }),
  );
}

function entraToken(config: NonNullable<AuthConfig["azure"]>, name: string, env: CredentialEnv): Renewable<string> {
  const { environment, clock, fetch } = env;
  const obtain = entraTokenSource(config, environment, { clock, fetch });
  return env.acquire(`ai-credential azure ${name}`, config, () =>
    createRenewable({ name: `Entra ID token for ${name}`, clock, logger: env.logger.for("llm"), obtain }),
  );
}

/**
 * Reads the file at load, so that a wrong path is a configuration error. Rereads it at most once per `FILE_CHECK_MS`.
 */
function fileReader(path: string, clock: Clock): () => string {
  let key = readFileSync(path, "utf8").trim();
  if (key === "") throw new Error(`${path} is empty`);
  let readAtMs = clock.monotonicMs();
  return () => {
    if (clock.monotonicMs() - readAtMs >= FILE_CHECK_MS) {
      readAtMs = clock.monotonicMs();
      try {
        key = readFileSync(path, "utf8").trim() || key;
      } catch {
        // The file may be missing while it is replaced, so the last key stays in use.
      }
    }
    return key;
  };
}

/** `headers` must not contain a credential. */
export function addKey(headers: HeaderList, form: CredentialForm, key: string): void {
  switch (form) {
    case "bearer":
    case "aws":
      headers.add("authorization", `Bearer ${key}`);
      break;
    case "x-api-key":
      // Anthropic's subscription tokens are bearer tokens. Its API keys are not.
      if (key.startsWith("sk-ant-oat")) headers.add("authorization", `Bearer ${key}`);
      else headers.add("x-api-key", key);
      break;
    default:
      headers.add(form, key);
  }
}

export function clientKey(exchange: Exchange, explicit: boolean): string | undefined {
  const { headers } = exchange.request;
  const direct =
    headers.get("x-api-key") ??
    headers.get("api-key") ??
    headers.get("x-goog-api-key") ??
    queryKey(exchange.request.query) ??
    bearer(headers.get("authorization"));
  if (direct !== undefined) return direct;
  if (!explicit || !exchange.credentials.presented) return undefined;
  const { header, value } = exchange.credentials.presented;
  return header === "authorization" ? bearer(value) : value;
}

function queryKey(query: string): string | undefined {
  return query.includes("key=") ? (new URLSearchParams(query).get("key") ?? undefined) : undefined;
}

function bearer(value: string | undefined): string | undefined {
  return value !== undefined && /^bearer /i.test(value) ? value.slice("bearer ".length).trim() : undefined;
}

/** Must be called when the provider rejected the credential. */
export function invalidateCredential(credential: Credential): void {
  if (credential.kind === "token") credential.token.invalidate();
  else if (credential.kind === "aws") credential.keys.invalidate();
}

export const MISSING_AWS_KEYS: LlmError = {
  status: 401,
  message: `this provider needs AWS credentials: \`auth.aws\` with keys or a profile, \`auth.aws: {}\` for ${AWS_SOURCES}, or \`auth.key\``,
  code: "missing_credential",
};

const awsAuth = markLocal(
  z
    .strictObject({
      accessKeyId: z.string().min(1).optional().describe("The access key ID."),
      secretAccessKey: secret().optional().describe("The secret access key."),
      sessionToken: secret().optional().describe("The session token of temporary credentials."),
      profile: watchedFilePath().optional().describe("A profile in the shared credentials file, instead of keys."),
    })
    .refine(
      ({ accessKeyId, secretAccessKey, sessionToken, profile }) =>
        profile === undefined ||
        (accessKeyId === undefined && secretAccessKey === undefined && sessionToken === undefined),
      "use either `profile` or keys",
    ),
  { what: "credentials of this machine", isLocal: (value) => !hasOwn(value, "secretAccessKey") },
).describe(
  "Signs requests to Amazon Bedrock (Signature Version 4). `{}` uses the default AWS credential chain (environment, shared credentials file, web identity, container, instance).",
);

const googleAuth = markLocal(
  z.strictObject({
    keyFile: watchedFilePath()
      .optional()
      .describe(
        "The JSON key file of a service account, or the file that `gcloud auth application-default login` writes. Default: the file in GOOGLE_APPLICATION_CREDENTIALS, otherwise the metadata server of the machine.",
      ),
  }),
  { what: "credentials of this machine", isLocal: (value) => !hasOwn(value, "keyFile") },
).describe("An access token for Google Cloud (Vertex AI), renewed before it expires.");

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
  "An access token from Microsoft Entra ID (Azure), renewed before it expires. `{}` uses the default Azure credential chain (application, workload identity, managed identity).",
);

function hasOwn(value: unknown, field: string): boolean {
  return typeof value === "object" && value !== null && Object.hasOwn(value, field);
}

export const authSchema = exactlyOneOf(
  z.strictObject({
    key: secret().optional().describe("The provider's key, usually from an environment variable."),
    file: watchedFilePath()
      .optional()
      .describe("A file that contains the key. It is read again when it changes, so short-lived tokens work."),
    passthrough: z
      .strictObject({})
      .optional()
      .describe("Forwards the client's credential to the provider, even if the gateway used it for authentication."),
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
        file: watchedFilePath().optional(),
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
