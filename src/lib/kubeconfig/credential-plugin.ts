/**
 * Credential plugins of a kubeconfig (client.authentication.k8s.io): programs of cloud providers that print a token
 * or a certificate. What they ask of a person goes to standard error while they run, as with kubectl.
 */
import { resolve } from "node:path";
import { escapeControls } from "../log/logger.ts";
import { runProgram } from "../process/run-program.ts";
import { type Entry, type Fields, pem, type Shown, text } from "./kubeconfig-entry.ts";
import type { PluginHost } from "./kubeconfig-error.ts";
import { KubeconfigError } from "./kubeconfig-error.ts";

const VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
/** Where the cluster's entry keeps settings for plugins. */
const PLUGIN_EXTENSION = "client.authentication.k8s.io/exec";

export async function runCredentialPlugin(user: Entry, cluster: Entry, terminal: PluginHost): Promise<Shown> {
  const plugin = (user.fields.exec ?? {}) as Fields;
  const command = text(plugin.command);
  if (command === undefined) throw new KubeconfigError(`exec of ${user.title} in the kubeconfig has no command`);
  const version = String(plugin.apiVersion);
  if (!VERSIONS.includes(version))
    throw new KubeconfigError(
      `the credential plugin ${command} has the apiVersion ${version}: expected ${VERSIONS.join(" or ")}`,
    );
  const interactive = terminal.isInteractive && plugin.interactiveMode !== "Never";
  if (plugin.interactiveMode === "Always" && !interactive)
    throw new KubeconfigError(`the credential plugin ${command} needs input: run gwctl in a terminal`);

  const spec = { ...(plugin.provideClusterInfo === true ? { cluster: clusterInfo(cluster) } : {}), interactive };
  const environment = {
    ...terminal.environment,
    ...extraEnvironment(plugin),
    KUBERNETES_EXEC_INFO: JSON.stringify({ kind: "ExecCredential", apiVersion: version, spec }),
  };
  const args = Array.isArray(plugin.args) ? plugin.args.map(String) : [];
  const path = command.includes("/") ? resolve(user.folder, command) : command;
  const run = await runProgram(path, args, {
    environment,
    inheritStdin: interactive,
    onStderr: (said) => terminal.err(printable(said)),
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT")
      throw new KubeconfigError(`the credential plugin ${command} cannot run: ${error.message}`);
    const hint = text(plugin.installHint)?.trim().replace(/\s+/g, " ");
    throw new KubeconfigError(printable(`the credential plugin ${command} is not installed${hint ? `: ${hint}` : ""}`));
  });
  if (run.code !== 0) throw new KubeconfigError(`the credential plugin ${command} failed with exit code ${run.code}`);
  return credentialOf(run.stdout, command, version);
}

function credentialOf(stdout: string, command: string, version: string): Shown {
  const answer = parsed(stdout);
  if (answer === undefined)
    throw new KubeconfigError(`the credential plugin ${command} did not print an ExecCredential`);
  if (answer.apiVersion !== undefined && answer.apiVersion !== version)
    throw new KubeconfigError(
      `the credential plugin ${command} is configured for ${version} and answers with ${String(answer.apiVersion)}`,
    );
  const token = text(answer.status?.token);
  const cert = text(answer.status?.clientCertificateData);
  const key = text(answer.status?.clientKeyData);
  if ((cert === undefined) !== (key === undefined) || (token === undefined && cert === undefined))
    throw new KubeconfigError(
      `the credential plugin ${command} returned neither a token nor a certificate with its key`,
    );
  return {
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    tls: cert === undefined || key === undefined ? {} : { cert, key },
  };
}

function parsed(stdout: string): { readonly apiVersion?: unknown; readonly status?: Fields } | undefined {
  try {
    const value: unknown = JSON.parse(stdout);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

function extraEnvironment(plugin: Fields): Record<string, string> {
  const list = Array.isArray(plugin.env) ? (plugin.env as readonly { name?: unknown; value?: unknown }[]) : [];
  return Object.fromEntries(list.map(({ name, value }) => [String(name), String(value ?? "")]));
}

/** `provideClusterInfo`: the cluster's entry with its authority as data, and its settings for plugins. */
function clusterInfo(cluster: Entry): Record<string, unknown> {
  const { fields } = cluster;
  const ca = pem(cluster, "certificate-authority");
  const extensions = Array.isArray(fields.extensions) ? (fields.extensions as readonly Fields[]) : [];
  const config = extensions.find(({ name }) => name === PLUGIN_EXTENSION)?.extension;
  return {
    server: fields.server,
    ...(text(fields["tls-server-name"]) === undefined ? {} : { "tls-server-name": fields["tls-server-name"] }),
    ...(fields["insecure-skip-tls-verify"] === true ? { "insecure-skip-tls-verify": true } : {}),
    ...(ca === undefined ? {} : { "certificate-authority-data": Buffer.from(ca).toString("base64") }),
    ...(config === undefined ? {} : { config }),
  };
}

/** What a plugin says moves no cursor. Line breaks and tabs stay. */
function printable(said: string): string {
  return said.split("\n").map(escapeControls).join("\n");
}
