/**
 * The credential for a provider: a configured key, a file that somebody renews, the client's own, or an AWS
 * signature. A configured key replaces whatever the client sent; the key goes only where the configuration says,
 * never to a place that a request names.
 */
import { readFileSync } from "node:fs";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Clock } from "../../lib/clock.ts";
import type { HeaderList } from "../../lib/headers.ts";
import type { CredentialForm } from "../../llm/provider.ts";
import type { AuthConfig } from "./schema.ts";

export interface AwsKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

export type Credential =
  | { readonly kind: "key"; read(): string }
  | { readonly kind: "aws"; readonly keys: AwsKeys }
  /** `explicit`: also a credential that authentication has read and withheld. */
  | { readonly kind: "client"; readonly explicit: boolean };

/** Every header in which some client sends its key, and what AWS clients sign with. */
export const CREDENTIAL_HEADERS: ReadonlySet<string> = new Set([
  "authorization",
  "x-api-key",
  "api-key",
  "x-goog-api-key",
  "x-amz-date",
  "x-amz-security-token",
  "x-amz-content-sha256",
]);

const FILE_CHECK_MS = 5_000;

export function compileCredential(
  config: AuthConfig | undefined,
  clock: Clock,
  resolvePath: (path: string) => string,
): Credential {
  if (config === undefined) return { kind: "client", explicit: false };
  if (config.passthrough) return { kind: "client", explicit: true };
  if (config.aws) return { kind: "aws", keys: config.aws };
  if (config.key !== undefined) {
    const key = config.key;
    return { kind: "key", read: () => key };
  }
  return { kind: "key", read: fileReader(resolvePath(config.file ?? ""), clock) };
}

/** The file is read at load, so that a wrong path fails there, and again at most every few seconds. */
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
        // Being replaced right now: the last good key serves on.
      }
    }
    return key;
  };
}

/** Sets the key in the provider's own header. `headers` has no credential any more when this runs. */
export function addKey(headers: HeaderList, form: CredentialForm, key: string): void {
  switch (form) {
    case "bearer":
    case "aws":
      headers.add("authorization", `Bearer ${key}`);
      break;
    case "x-api-key":
      // Subscription tokens of Anthropic are bearer tokens, its keys are not.
      if (key.startsWith("sk-ant-oat")) headers.add("authorization", `Bearer ${key}`);
      else headers.add("x-api-key", key);
      break;
    default:
      headers.add(form, key);
  }
}

/** The key that the client sent, in whichever header, or undefined. */
export function clientKey(exchange: Exchange, explicit: boolean): string | undefined {
  const { headers } = exchange.request;
  const direct =
    headers.get("x-api-key") ??
    headers.get("api-key") ??
    headers.get("x-goog-api-key") ??
    queryKey(exchange.request.query) ??
    bearer(headers.get("authorization"));
  if (direct !== undefined) return direct;
  if (!explicit || !exchange.credential) return undefined;
  const { header, value } = exchange.credential;
  return header === "authorization" ? bearer(value) : value;
}

/** Google's clients may send the key as a query parameter. */
function queryKey(query: string): string | undefined {
  return query.includes("key=") ? (new URLSearchParams(query).get("key") ?? undefined) : undefined;
}

function bearer(value: string | undefined): string | undefined {
  return value !== undefined && /^bearer /i.test(value) ? value.slice("bearer ".length).trim() : undefined;
}

export function missingAwsKeys(): GatewayError {
  return new GatewayError("authentication_failed", {
    message: "this provider needs AWS credentials: set `auth.aws` or `auth.key`",
  });
}
