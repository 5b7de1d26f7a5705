/**
 * What the user of a kubeconfig shows to the cluster: a token, a password, a client certificate (also beside one of
 * them), what a credential plugin gives, and as whom he acts.
 */

import { runCredentialPlugin } from "./credential-plugin.ts";
import { type Entry, pem, readBeside, type Shown, text } from "./kubeconfig-entry.ts";
import type { PluginHost } from "./kubeconfig-error.ts";
import { KubeconfigError } from "./kubeconfig-error.ts";

export async function userCredentials(user: Entry, cluster: Entry, terminal: PluginHost): Promise<Shown> {
  const { title, fields } = user;
  if (fields["auth-provider"] !== undefined)
    throw new KubeconfigError(`${title} of the kubeconfig: ${providerMend(fields)}`);
  const certificate = clientCertificate(user);
  const token = tokenOf(user);
  const isNamed = text(fields.username) !== undefined || text(fields.password) !== undefined;
  if (token !== undefined && isNamed)
    throw new KubeconfigError(`${title} of the kubeconfig has both a token and a password: remove one`);
  const acting = actingAs(user);
  if (token !== undefined) return { headers: { authorization: `Bearer ${token}`, ...acting }, tls: certificate };
  if (isNamed) {
    const pair = `${text(fields.username) ?? ""}:${text(fields.password) ?? ""}`;
    const encoded = Buffer.from(pair).toString("base64");
    return { headers: { authorization: `Basic ${encoded}`, ...acting }, tls: certificate };
  }
  if (fields.exec === undefined) return { headers: acting, tls: certificate };
  const given = await runCredentialPlugin(user, cluster, terminal);
  return { headers: { ...given.headers, ...acting }, tls: { ...certificate, ...given.tls } };
}

/** A file is newer than what stands beside it. */
function tokenOf(user: Entry): string | undefined {
  const file = text(user.fields.tokenFile);
  return file === undefined ? text(user.fields.token) : readBeside(user, file).trim();
}

function clientCertificate(user: Entry): Shown["tls"] {
  const cert = pem(user, "client-certificate");
  const key = pem(user, "client-key");
  if (cert === undefined && key === undefined) return {};
  if (cert !== undefined && key !== undefined) return { cert, key };
  const missing = cert === undefined ? "client-certificate" : "client-key";
  throw new KubeconfigError(
    `${user.title} of the kubeconfig needs ${missing} or ${missing}-data for its client certificate`,
  );
}

/** Impersonation (`as`): one value per header is all that we can send. */
function actingAs({ title, fields }: Entry): Record<string, string> {
  const groups = Array.isArray(fields["as-groups"]) ? fields["as-groups"].map(String) : [];
  if (groups.length > 1 || fields["as-user-extra"] !== undefined)
    throw new KubeconfigError(
      `${title} of the kubeconfig: gwctl supports impersonation of a user and one group, not several groups or extras`,
    );
  const name = text(fields.as);
  const uid = text(fields["as-uid"]);
  const [group] = groups;
  return {
    ...(name === undefined ? {} : { "impersonate-user": name }),
    ...(uid === undefined ? {} : { "impersonate-uid": uid }),
    ...(group === undefined ? {} : { "impersonate-group": group }),
  };
}

function providerMend(fields: Entry["fields"]): string {
  const { name } = (fields["auth-provider"] ?? {}) as { name?: unknown };
  return `the auth-provider ${String(name)} is not supported; use a credential plugin (exec), as newer versions of kubectl do`;
}
