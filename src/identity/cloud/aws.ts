/**
 * Obtains AWS keys and signs requests with Signature Version 4. Keys that are not configured come from the sources of
 * the AWS SDKs. Single sign-on, `credential_process`, and roles assumed through profiles are not supported.
 */

import { createHash, createHmac, type Hash, type Hmac } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Clock } from "../../base/clock.ts";
import { exportsOf } from "../../base/exports-of.ts";
import { newForm, readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { SignedRequest, SignRequest } from "../../core/signed-request.ts";
import type { Fetch, FetchRequest } from "../../http/fetch.ts";
import type { HeaderList } from "../../http/headers.ts";
import { hostOf, isLoopbackHost } from "../../http/host.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { readMembers } from "../../json/read-json.ts";
import { readXmlElement } from "./read-xml.ts";
import type { Lease, Renewable } from "./renewable.ts";

const CREDENTIALS = peerInput("cloud-provider/credentials");
const XML = peerInput("cloud-provider/xml-credentials");
const QUERY = peerInput("client/query");

export const AWS_SOURCES =
  "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in the shared credentials file, AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN, a container's role (AWS_CONTAINER_CREDENTIALS_*_URI) or an instance's role";

export function obtainAwsKeys(options: AwsSourceOptions): Promise<Lease<AwsKeys>> {
  const { profile, variables } = options;
  if (profile !== undefined) return Promise.resolve().then(() => requireProfile(profile, variables));
  if (variables.AWS_ACCESS_KEY_ID && variables.AWS_SECRET_ACCESS_KEY) {
    const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = variables;
    const sessionToken = variables.AWS_SESSION_TOKEN || undefined;
    return Promise.resolve({ value: { accessKeyId, secretAccessKey, sessionToken }, expiresAtMs: undefined });
  }
  const named = variables.AWS_PROFILE || undefined;
  if (named !== undefined) return Promise.resolve().then(() => requireProfile(named, variables));
  const fromFile = readProfile("default", variables);
  if (fromFile) return Promise.resolve(fromFile);
  if (variables.AWS_WEB_IDENTITY_TOKEN_FILE && variables.AWS_ROLE_ARN) return webIdentityKeys(options);
  if (variables.AWS_CONTAINER_CREDENTIALS_RELATIVE_URI || variables.AWS_CONTAINER_CREDENTIALS_FULL_URI)
    return containerKeys(options);
  if (variables.AWS_EC2_METADATA_DISABLED?.toLowerCase() === "true")
    return Promise.reject(new Error(`no AWS credentials found; supported are ${AWS_SOURCES}`));
  return instanceKeys(options).catch((error: Error) => {
    throw new Error(`no AWS credentials found (${error.message}); supported are ${AWS_SOURCES}`);
  });
}

function requireProfile(profile: string, variables: Variables): Lease<AwsKeys> {
  const found = readProfile(profile, variables);
  if (found) return found;
  throw new Error(
    `the profile ${JSON.stringify(profile)} has no aws_access_key_id and aws_secret_access_key in ${sharedFile(variables) ?? "the shared credentials file"}; single sign-on, credential_process and role_arn are not supported`,
  );
}

function readProfile(profile: string, variables: Variables): Lease<AwsKeys> | undefined {
  const path = sharedFile(variables);
  if (path === undefined) return undefined;
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
  const settings = readSection(text, profile);
  const accessKeyId = settings.get("aws_access_key_id");
  const secretAccessKey = settings.get("aws_secret_access_key");
  if (!accessKeyId || !secretAccessKey) return undefined;
  // A lease without an expiry is renewed from time to time, so that changes to the file are noticed.
  return {
    value: { accessKeyId, secretAccessKey, sessionToken: settings.get("aws_session_token") },
    expiresAtMs: undefined,
  };
}

function sharedFile(variables: Variables): string | undefined {
  if (variables.AWS_SHARED_CREDENTIALS_FILE) return variables.AWS_SHARED_CREDENTIALS_FILE;
  const home = variables.HOME || variables.USERPROFILE;
  return home ? `${home}/.aws/credentials` : undefined;
}

/** Reads one section of an INI file. Like the AWS SDKs, it ignores lines that are not settings. */
function readSection(text: string, section: string): Map<string, string> {
  const settings = new Map<string, string>();
  let inside = false;
  for (const line of text.split(/\r?\n/)) {
    const header = /^\s*\[\s*(?:profile\s+)?"?([^\]"]*?)"?\s*\]/.exec(line);
    if (header) inside = header[1] === section;
    else if (inside) {
      const setting = /^\s*([A-Za-z0-9_]+)\s*=\s*(.*?)\s*$/.exec(line);
      if (setting) settings.set((setting[1] as string).toLowerCase(), setting[2] as string);
    }
  }
  return settings;
}

export interface AwsKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

export type Variables = Readonly<Record<string, string | undefined>>;

export interface AwsSourceOptions {
  /** If set, the profile is the only source of keys. */
  readonly profile: string | undefined;
  readonly region: string;
  readonly variables: Variables;
  readonly clock: Clock;
  readonly fetch: Fetch;
}

const TIMEOUT_MS = 5_000;
/** The metadata service runs on the same host, so a slow response probably means that it does not exist. */
const INSTANCE_TIMEOUT_MS = 1_000;
const CONTAINER_HOST = "http://169.254.170.2";
const INSTANCE_HOST = "http://169.254.169.254";
const INSTANCE_TOKEN_SECONDS = "300";
/** These hosts serve keys over plain HTTP, as loopback addresses may, because they are on the same machine. */
const CONTAINER_HOSTS = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

export async function webIdentityKeys(options: AwsSourceOptions): Promise<Lease<AwsKeys>> {
  const { variables, region, clock } = options;
  const domain = region.startsWith("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const form = newForm({
    Action: "AssumeRoleWithWebIdentity",
    Version: "2011-06-15",
    RoleArn: variables.AWS_ROLE_ARN ?? "",
    RoleSessionName: variables.AWS_ROLE_SESSION_NAME || `gateway-${clock.now()}`,
    // Kubernetes rotates the token file, so it is read for each token request.
    WebIdentityToken: readFileSync(variables.AWS_WEB_IDENTITY_TOKEN_FILE ?? "", "utf8").trim(),
  });
  const text = await fetchText(options, "the AWS token service", {
    url: variables.AWS_ENDPOINT_URL_STS || `https://sts.${region}.${domain}/`,
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded", accept: "application/json" },
    body: Buffer.from(form.toString()),
  });
  return parseKeys(
    text.startsWith("{") ? credentialsIn(readMembers(CREDENTIALS, text)) : fromXml(text),
    "SessionToken",
  );
}

export async function containerKeys(options: AwsSourceOptions): Promise<Lease<AwsKeys>> {
  const { variables } = options;
  const full = variables.AWS_CONTAINER_CREDENTIALS_FULL_URI;
  const relative = variables.AWS_CONTAINER_CREDENTIALS_RELATIVE_URI;
  const url = relative ? new URL(relative, CONTAINER_HOST) : new URL(full ?? "");
  const host = hostOf(url.host);
  if (url.protocol !== "https:" && !isLoopbackHost(host) && !CONTAINER_HOSTS.includes(host))
    throw new Error(`AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or a local address, not ${url.host}`);
  const file = variables.AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE;
  const token = file ? readFileSync(file, "utf8").trim() : variables.AWS_CONTAINER_AUTHORIZATION_TOKEN;
  const text = await fetchText(options, "the container's credential service", {
    url: url.href,
    ...(token ? { headers: { authorization: token } } : {}),
  });
  return parseKeys(readMembers(CREDENTIALS, text), "Token");
}

export async function instanceKeys(options: AwsSourceOptions): Promise<Lease<AwsKeys>> {
  const host = (options.variables.AWS_EC2_METADATA_SERVICE_ENDPOINT || INSTANCE_HOST).replace(/\/+$/, "");
  const service = "the instance's metadata service";
  const timeoutMs = INSTANCE_TIMEOUT_MS;
  const token = await fetchText(options, service, {
    url: `${host}/latest/api/token`,
    method: "PUT",
    headers: { "x-aws-ec2-metadata-token-ttl-seconds": INSTANCE_TOKEN_SECONDS },
    timeoutMs,
  });
  const headers = { "x-aws-ec2-metadata-token": token.trim() };
  const roles = `${host}/latest/meta-data/iam/security-credentials/`;
  const role = (await fetchText(options, service, { url: roles, headers, timeoutMs })).trim().split("\n", 1)[0] ?? "";
  const text = await fetchText(options, service, { url: roles + encodeURIComponent(role), headers, timeoutMs });
  return parseKeys(readMembers(CREDENTIALS, text), "Token");
}

type CredentialRequest = Omit<FetchRequest, "timeoutMs" | "input"> & { readonly timeoutMs?: number };

async function fetchText({ fetch }: AwsSourceOptions, service: string, request: CredentialRequest): Promise<string> {
  const response = await fetch({ timeoutMs: TIMEOUT_MS, ...request, input: CREDENTIALS }).catch((error: Error) => {
    throw new Error(`${service} cannot be reached: ${error.message}`);
  });
  if (response.status !== 200) throw new Error(`${service} answered with status ${response.status}`);
  return response.body.toString("utf8");
}

function credentialsIn(body: Members | undefined): Members | undefined {
  const response = body?.AssumeRoleWithWebIdentityResponse;
  const result = isMembers(response) ? response.AssumeRoleWithWebIdentityResult : undefined;
  return isMembers(result) && isMembers(result.Credentials) ? result.Credentials : undefined;
}

/** Older token services respond only in XML. The four elements have no nesting. */
function fromXml(text: string): Members {
  return Object.fromEntries(
    ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"].map((name) => [
      name,
      readXmlElement(XML, text, name),
    ]),
  );
}

function parseKeys(body: Members | undefined, tokenName: string): Lease<AwsKeys> {
  const { AccessKeyId: accessKeyId, SecretAccessKey: secretAccessKey, Expiration } = body ?? {};
  const sessionToken = body?.[tokenName];
  // The token service returns seconds in JSON. Other responses contain a date.
  const expiresAtMs = typeof Expiration === "number" ? Expiration * 1000 : Date.parse(String(Expiration));
  if (
    typeof accessKeyId !== "string" ||
    typeof secretAccessKey !== "string" ||
    typeof sessionToken !== "string" ||
    !Number.isFinite(expiresAtMs)
  )
    throw new Error("the AWS credential service answered without AccessKeyId, SecretAccessKey, token and Expiration");
  return { value: { accessKeyId, secretAccessKey, sessionToken }, expiresAtMs };
}

export interface SigningScope {
  readonly region: string;
  /** Names the AWS service, for example `bedrock` or `execute-api`. */
  readonly service: string;
}

/** AWS rejects signatures that are older or newer than 5 minutes, some services with one of these statuses. */
const SKEWED_STATUSES: ReadonlySet<number> = new Set([400, 401, 403]);
/** Smaller differences are not corrected, because dates have a resolution of 1 s and responses take time. */
const MIN_SKEW_MS = 60_000;

/** The signer rejects with `CredentialError` if no keys are available. */
export function createAwsSigner(keys: Renewable<AwsKeys>, scope: SigningScope, clock: Clock): SignRequest {
  let loading: Promise<Signer> | undefined;
  let skewMs = 0;
  const sign = async (request: SignedRequest): Promise<void> => {
    loading ??= load(keys, scope);
    await (await loading)(request, new Date(clock.now() + skewMs));
  };
  return Object.assign(sign, {
    correctClock(status: number, headers: HeaderList): boolean {
      if (!SKEWED_STATUSES.has(status)) return false;
      const foundMs = Date.parse(headers.get("date") ?? "") - clock.now();
      if (!(Math.abs(foundMs - skewMs) > MIN_SKEW_MS)) return false;
      skewMs = foundMs;
      return true;
    },
  });
}

type Signer = (request: SignedRequest, signingDate: Date) => Promise<void>;

async function load(keys: Renewable<AwsKeys>, { region, service }: SigningScope): Promise<Signer> {
  const [{ SignatureV4 }, { HttpRequest }] = await Promise.all([
    import("@smithy/signature-v4").then(exportsOf),
    import("@smithy/protocol-http").then(exportsOf),
  ]);
  const signer = new SignatureV4({
    service,
    region,
    // S3 is the only service whose canonical path is encoded once.
    uriEscapePath: service !== "s3",
    credentials: async () => {
      const { accessKeyId, secretAccessKey, sessionToken } = await keys.get();
      return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) };
    },
    sha256: NodeSha256,
  });
  return async ({ method, protocol, hostname, port, path, headers, body }, signingDate) => {
    const [pathname = "/", ...query] = path.split("?");
    const hash = createHash("sha256");
    for (const piece of body) hash.update(piece);
    const host = headers.get("host") ?? hostname;
    const contentType = headers.get("content-type");
    const signed = await signer.sign(
      new HttpRequest({
        method,
        protocol: `${protocol}:`,
        hostname,
        ...(port === undefined ? {} : { port }),
        path: pathname,
        query: parametersOf(query.join("?")),
        // Other headers are not signed, because proxies may change them.
        headers: {
          host,
          ...(contentType === undefined ? {} : { "content-type": contentType }),
          "x-amz-content-sha256": hash.digest("hex"),
        },
      }),
      { signingDate },
    );
    for (const [name, value] of Object.entries(signed.headers)) headers.set(name.toLowerCase(), value);
  };
}

function parametersOf(query: string): Record<string, string[]> {
  const parameters = readForm(QUERY, query);
  return Object.fromEntries([...new Set(parameters.keys())].map((name) => [name, parameters.getAll(name)]));
}

class NodeSha256 {
  #hash: Hash | Hmac;
  readonly #secret: string | Uint8Array | undefined;

  constructor(secret?: string | ArrayBuffer | ArrayBufferView) {
    this.#secret = secret === undefined || typeof secret === "string" ? secret : toBytes(secret);
    this.#hash = this.#create();
  }

  update(data: string | ArrayBuffer | ArrayBufferView): void {
    this.#hash.update(typeof data === "string" ? data : toBytes(data));
  }

  digest(): Promise<Uint8Array> {
    return Promise.resolve(new Uint8Array(this.#hash.digest()));
  }

  reset(): void {
    this.#hash = this.#create();
  }

  #create(): Hash | Hmac {
    return this.#secret === undefined ? createHash("sha256") : createHmac("sha256", this.#secret);
  }
}

function toBytes(data: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
}
