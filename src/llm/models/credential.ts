/**
 * Compiles the configured credential of a provider.
 */
import { readFileSync } from "node:fs";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Exchange } from "../../core/exchange.ts";
import { machineOf } from "../../core/policy.ts";
import { exactlyOneOf, secret, watchedFilePath } from "../../core/schema.ts";
import type { HeaderList } from "../../http/headers.ts";
import { AWS_SOURCES, type AwsKeys } from "../../identity/cloud/aws.ts";
import {
  awsAuth,
  awsKeys,
  azureAuth,
  type CloudEnv,
  entraToken,
  googleAuth,
  googleToken,
} from "../../identity/cloud/cloud-credentials.ts";
import type { Renewable } from "../../identity/cloud/renewable.ts";
import type { LlmError } from "../request/llm-errors.ts";
import type { CredentialForm } from "./providers.ts";

const QUERY = peerInput("client/query");

/** The name of Amazon Bedrock in signatures. */
export const BEDROCK = "bedrock";

export type Credential =
  | { readonly kind: "key"; read(): string }
  | { readonly kind: "token"; readonly token: Renewable<string> }
  | { readonly kind: "aws"; readonly keys: Renewable<AwsKeys> }
  /** If `explicit` is true, a credential that an authentication policy consumed is forwarded too. */
  | { readonly kind: "client"; readonly explicit: boolean };

const FILE_CHECK_MS = 5_000;

export function compileCredential(
  config: AuthConfig | undefined,
  name: string,
  region: string,
  env: CloudEnv,
): Credential {
  const owner = { name, area: "llm" };
  if (config === undefined) return { kind: "client", explicit: false };
  if (config.passthrough) return { kind: "client", explicit: true };
  if (config.aws) return { kind: "aws", keys: awsKeys(config.aws, owner, region, env) };
  if (config.google) return { kind: "token", token: googleToken(config.google, owner, env) };
  if (config.azure) return { kind: "token", token: entraToken(config.azure, owner, env) };
  if (config.key !== undefined) {
    const key = config.key;
    return { kind: "key", read: () => key };
  }
  return { kind: "key", read: fileReader(machineOf(env, "name files").resolvePath(config.file ?? ""), env.clock) };
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
  return query.includes("key=") ? (readForm(QUERY, query).get("key") ?? undefined) : undefined;
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

const llmAws = awsAuth({});
const llmAzure = azureAuth({});

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
    aws: llmAws.optional(),
    google: googleAuth.optional(),
    azure: llmAzure.optional(),
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
        aws: llmAws.optional(),
        google: googleAuth.optional(),
        azure: llmAzure.optional(),
      }),
      ["file", "passthrough", "aws", "google", "azure"],
    ),
  ])
  .optional();

export type AuthConfig = z.output<typeof authSchema>;
