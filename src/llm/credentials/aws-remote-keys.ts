/**
 * Temporary AWS keys from the services that hand them out: the token service for a web identity (pods with a service
 * account), the agent beside a container, and the metadata service of an instance (version 2 only). Answers are
 * bounded and redirects are not followed; what a service says wrong is named without quoting it.
 */
import { readFileSync } from "node:fs";
import type { FetchRequest } from "../../http/fetch.ts";
import { isMembers, type Members, parseMembers } from "../../json/json.ts";
import type { AwsKeys, AwsSourceOptions } from "./aws-keys.ts";
import type { Lease } from "./renewed.ts";

const TIMEOUT_MS = 5_000;
/** The metadata service is on the same machine, or nowhere. */
const INSTANCE_TIMEOUT_MS = 1_000;
const MAX_BYTES = 64 * 1024;
const CONTAINER_HOST = "http://169.254.170.2";
const INSTANCE_HOST = "http://169.254.169.254";
const INSTANCE_TOKEN_SECONDS = "300";
/** Where a key may be fetched without encryption: the machine itself and the agents' fixed addresses. */
const LOCAL_HOSTS = new Set(["localhost", "127.0.0.1", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"]);

export async function webIdentityKeys(options: AwsSourceOptions): Promise<Lease<AwsKeys>> {
  const { variables, region, clock } = options;
  const domain = region.startsWith("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const form = new URLSearchParams({
    Action: "AssumeRoleWithWebIdentity",
    Version: "2011-06-15",
    RoleArn: variables.AWS_ROLE_ARN ?? "",
    RoleSessionName: variables.AWS_ROLE_SESSION_NAME || `gateway-${clock.now()}`,
    // Read each time: the token beside a pod is replaced every hour.
    WebIdentityToken: readFileSync(variables.AWS_WEB_IDENTITY_TOKEN_FILE ?? "", "utf8").trim(),
  });
  const text = await ask(options, "the AWS token service", {
    url: variables.AWS_ENDPOINT_URL_STS || `https://sts.${region}.${domain}/`,
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded", accept: "application/json" },
    body: Buffer.from(form.toString()),
  });
  return keysOf(text.startsWith("{") ? credentialsIn(parseMembers(text)) : fromXml(text), "SessionToken");
}

export async function containerKeys(options: AwsSourceOptions): Promise<Lease<AwsKeys>> {
  const { variables } = options;
  const full = variables.AWS_CONTAINER_CREDENTIALS_FULL_URI;
  const relative = variables.AWS_CONTAINER_CREDENTIALS_RELATIVE_URI;
  const url = relative ? new URL(relative, CONTAINER_HOST) : new URL(full ?? "");
  if (url.protocol !== "https:" && !LOCAL_HOSTS.has(url.hostname))
    throw new Error(`AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or a local address, not ${url.host}`);
  const file = variables.AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE;
  const token = file ? readFileSync(file, "utf8").trim() : variables.AWS_CONTAINER_AUTHORIZATION_TOKEN;
  const text = await ask(options, "the container's credential service", {
    url: url.href,
    ...(token ? { headers: { authorization: token } } : {}),
  });
  return keysOf(parseMembers(text), "Token");
}

export async function instanceKeys(options: AwsSourceOptions): Promise<Lease<AwsKeys>> {
  const host = (options.variables.AWS_EC2_METADATA_SERVICE_ENDPOINT || INSTANCE_HOST).replace(/\/+$/, "");
  const who = "the instance's metadata service";
  const timeoutMs = INSTANCE_TIMEOUT_MS;
  const token = await ask(options, who, {
    url: `${host}/latest/api/token`,
    method: "PUT",
    headers: { "x-aws-ec2-metadata-token-ttl-seconds": INSTANCE_TOKEN_SECONDS },
    timeoutMs,
  });
  const headers = { "x-aws-ec2-metadata-token": token.trim() };
  const roles = `${host}/latest/meta-data/iam/security-credentials/`;
  const role = (await ask(options, who, { url: roles, headers, timeoutMs })).trim().split("\n", 1)[0] ?? "";
  const text = await ask(options, who, { url: roles + encodeURIComponent(role), headers, timeoutMs });
  return keysOf(parseMembers(text), "Token");
}

type Question = Omit<FetchRequest, "timeoutMs" | "maxBytes"> & { readonly timeoutMs?: number };

async function ask({ fetch }: AwsSourceOptions, who: string, question: Question): Promise<string> {
  const response = await fetch({ timeoutMs: TIMEOUT_MS, ...question, maxBytes: MAX_BYTES }).catch((error: Error) => {
    throw new Error(`${who} cannot be reached: ${error.message}`);
  });
  if (response.status !== 200) throw new Error(`${who} answered with status ${response.status}`);
  return response.body.toString("utf8");
}

function credentialsIn(body: Members | undefined): Members | undefined {
  const response = body?.AssumeRoleWithWebIdentityResponse;
  const result = isMembers(response) ? response.AssumeRoleWithWebIdentityResult : undefined;
  return isMembers(result) && isMembers(result.Credentials) ? result.Credentials : undefined;
}

/** Older token services answer in XML whatever was asked for; four plain elements need no parser. */
function fromXml(text: string): Members {
  const element = (name: string): string | undefined => new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1];
  return Object.fromEntries(
    ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"].map((name) => [name, element(name)]),
  );
}

function keysOf(body: Members | undefined, tokenName: string): Lease<AwsKeys> {
  const { AccessKeyId: accessKeyId, SecretAccessKey: secretAccessKey, Expiration } = body ?? {};
  const sessionToken = body?.[tokenName];
  // The token service counts seconds in JSON; everybody else writes a date.
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
