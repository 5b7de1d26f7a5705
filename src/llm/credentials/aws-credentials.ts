/**
 * Where AWS keys come from when the configuration does not hold them: the places and variables that AWS's own tools
 * use, in their order. Each place says whether it is there; the first that is there counts, and if it fails nothing
 * behind it is tried, so that a mistake does not end up as somebody else's role. Not supported: single sign-on,
 * `credential_process` and roles assumed through profiles.
 */
import { readFileSync } from "node:fs";
import type { AwsKeys, AwsSourceOptions, Variables } from "./aws-keys.ts";
import { containerKeys, instanceKeys, webIdentityKeys } from "./aws-remote-keys.ts";
import type { Lease } from "./renewed.ts";

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

/** Undefined if there is no such file, no such profile, or it holds no keys. */
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
  // The file may be rewritten by whoever renews it: it is looked at again.
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

/** The settings of one section of an INI file; a line that is no setting is passed over, as AWS's tools do. */
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
