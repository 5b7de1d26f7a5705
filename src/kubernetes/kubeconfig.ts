/**
 * Reads a kubeconfig like kubectl: merges several files and resolves a context, its cluster, and its user's
 * credentials. Settings that are not supported (proxies, built-in auth providers) are rejected by name, because
 * ignoring them would cause a 401 or a timeout.
 */

import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { peerInput } from "../base/peer-inputs.ts";
import { readYaml } from "../base/read-yaml.ts";
import { runProgram } from "../base/run-program.ts";
import { escapeLines } from "../base/safe-text.ts";
import type { TlsOptions } from "../http/http-client.ts";
import { defined } from "../json/json.ts";
import { readMembers } from "../json/read-json.ts";

const CREDENTIAL = peerInput("kubernetes-plugin/credential");

const KUBECONFIG = peerInput("file/kubeconfig");

export interface Cluster extends Credentials {
  readonly server: string;
  readonly namespace: string;
}

export async function loadCluster(flags: KubeconfigFlags, terminal: PluginHost): Promise<Cluster> {
  const files = kubeconfigFiles(flags, terminal);
  const documents = files.flatMap((file) => readKubeconfig(file, files.length > 1));
  if (documents.length === 0)
    throw new KubeconfigError(`no kubeconfig at ${files.join(", ")}: use --kubeconfig <file>`);
  const contextName = flags.context ?? documents.map(({ fields }) => fields["current-context"]).find(Boolean);
  if (typeof contextName !== "string")
    throw new KubeconfigError("the kubeconfig has no current-context: use --context <name>");
  const context = find(documents, "context", contextName);
  const clusterName = text(context.fields.cluster);
  if (clusterName === undefined) throw new KubeconfigError(`${context.title} of the kubeconfig has no cluster`);
  const cluster = find(documents, "cluster", clusterName);
  const server = serverOf(cluster);
  const tls = serverTls(cluster);
  const userName = text(context.fields.user);
  // Credentials are sent over plain HTTP only to this machine.
  const user = userName !== undefined && isPrivate(server) ? find(documents, "user", userName) : undefined;
  const credentials = user === undefined ? { headers: {}, tls: {} } : await userCredentials(user, cluster, terminal);
  return {
    server: server.href.replace(/\/+$/, ""),
    namespace: flags.namespace ?? text(context.fields.namespace) ?? "default",
    headers: credentials.headers,
    tls: { ...tls, ...credentials.tls },
  };
}

function kubeconfigFiles(flags: KubeconfigFlags, { environment }: PluginHost): string[] {
  if (flags.kubeconfig !== undefined) return [flags.kubeconfig];
  const listed = environment.KUBECONFIG?.split(process.platform === "win32" ? ";" : ":").filter(Boolean) ?? [];
  if (listed.length > 0) return [...new Set(listed)];
  return [join(environment.HOME ?? environment.USERPROFILE ?? ".", ".kube", "config")];
}

function readKubeconfig(file: string, mayBeAbsent: boolean): Entry[] {
  let source: string;
  try {
    source = readFileSync(file, "utf8");
  } catch (error) {
    if (mayBeAbsent && (error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw new KubeconfigError(`cannot read the kubeconfig ${file}: ${(error as Error).message}`);
  }
  let fields: unknown;
  try {
    fields = readYaml(KUBECONFIG, source);
  } catch (error) {
    throw new KubeconfigError(`the kubeconfig ${file} is not YAML: ${(error as Error).message.split("\n", 1)[0]}`);
  }
  if (fields === null) return [];
  if (typeof fields !== "object" || Array.isArray(fields))
    throw new KubeconfigError(`${file} is not a kubeconfig: it has no clusters, users and contexts`);
  return [{ title: file, folder: dirname(resolve(file)), fields: fields as Fields }];
}

/** The first file that defines a name takes precedence. */
function find(documents: readonly Entry[], kind: "context" | "cluster" | "user", name: string): Entry {
  const names: string[] = [];
  for (const { folder, fields } of documents) {
    const list = fields[`${kind}s`];
    for (const entry of Array.isArray(list) ? (list as readonly (Fields | null)[]) : []) {
      if (entry?.name === name) return { title: `${kind} ${name}`, folder, fields: (entry[kind] ?? {}) as Fields };
      if (typeof entry?.name === "string") names.push(entry.name);
    }
  }
  const known = names.length === 0 ? "it has none" : `it has ${names.slice(0, 10).join(", ")}`;
  throw new KubeconfigError(`the kubeconfig has no ${kind} named ${name}: ${known}`);
}

function serverOf({ title, fields }: Entry): URL {
  const server = text(fields.server);
  if (server === undefined) throw new KubeconfigError(`${title} of the kubeconfig has no server`);
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url?.protocol !== "https:" && url?.protocol !== "http:")
    throw new KubeconfigError(`${title} of the kubeconfig: the server ${server} is not an https:// URL`);
  if (fields["proxy-url"] !== undefined)
    throw new KubeconfigError(
      `${title} of the kubeconfig has a proxy-url, which gwctl does not use: run \`kubectl port-forward\` and use --local -p <port>`,
    );
  return url;
}

function serverTls(cluster: Entry): TlsOptions {
  const ca = pem(cluster, "certificate-authority");
  const insecure = cluster.fields["insecure-skip-tls-verify"] === true;
  if (insecure && ca !== undefined)
    throw new KubeconfigError(
      `${cluster.title} of the kubeconfig has both certificate-authority and insecure-skip-tls-verify: remove one`,
    );
  const servername = text(cluster.fields["tls-server-name"]);
  return {
    ...defined({ ca, servername }),
    ...(insecure ? { insecure } : {}),
  };
}

function isPrivate({ protocol, hostname }: URL): boolean {
  return protocol === "https:" || /^(?:localhost|\[::1\]|127(?:\.\d{1,3}){3})$/.test(hostname);
}

async function userCredentials(user: Entry, cluster: Entry, terminal: PluginHost): Promise<Credentials> {
  const { title, fields } = user;
  if (fields["auth-provider"] !== undefined)
    throw new KubeconfigError(`${title} of the kubeconfig: ${unsupportedProvider(fields)}`);
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

/** A token file takes precedence over an inline token, because it may be renewed. */
function tokenOf(user: Entry): string | undefined {
  const file = text(user.fields.tokenFile);
  return file === undefined ? text(user.fields.token) : readBeside(user, file).trim();
}

function clientCertificate(user: Entry): Credentials["tls"] {
  const cert = pem(user, "client-certificate");
  const key = pem(user, "client-key");
  if (cert === undefined && key === undefined) return {};
  if (cert !== undefined && key !== undefined) return { cert, key };
  const missing = cert === undefined ? "client-certificate" : "client-key";
  throw new KubeconfigError(
    `${user.title} of the kubeconfig needs ${missing} or ${missing}-data for its client certificate`,
  );
}

/** Supports only one group and no extras, because each header has one value. */
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
    ...defined({ "impersonate-user": name, "impersonate-uid": uid, "impersonate-group": group }),
  };
}

function unsupportedProvider(fields: Entry["fields"]): string {
  const { name } = (fields["auth-provider"] ?? {}) as { name?: unknown };
  return `the auth-provider ${String(name)} is not supported; use a credential plugin (exec), as newer versions of kubectl do`;
}

// Credential plugins (client.authentication.k8s.io) are programs of cloud providers that print a token or a
// certificate. Their prompts are forwarded to standard error while they run.

const VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const PLUGIN_EXTENSION = "client.authentication.k8s.io/exec";

async function runCredentialPlugin(user: Entry, cluster: Entry, terminal: PluginHost): Promise<Credentials> {
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
    onStderr: (output) => terminal.err(escapeLines(output)),
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT")
      throw new KubeconfigError(`the credential plugin ${command} cannot run: ${error.message}`);
    const hint = text(plugin.installHint)?.trim().replace(/\s+/g, " ");
    throw new KubeconfigError(
      escapeLines(`the credential plugin ${command} is not installed${hint ? `: ${hint}` : ""}`),
    );
  });
  if (run.code !== 0) throw new KubeconfigError(`the credential plugin ${command} failed with exit code ${run.code}`);
  return credentialOf(run.stdout, command, version);
}

function credentialOf(stdout: string, command: string, version: string): Credentials {
  const credential = parsed(stdout);
  if (credential === undefined)
    throw new KubeconfigError(`the credential plugin ${command} did not print an ExecCredential`);
  if (credential.apiVersion !== undefined && credential.apiVersion !== version)
    throw new KubeconfigError(
      `the credential plugin ${command} is configured for ${version} and answers with ${String(credential.apiVersion)}`,
    );
  const token = text(credential.status?.token);
  const cert = text(credential.status?.clientCertificateData);
  const key = text(credential.status?.clientKeyData);
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
  return readMembers(CREDENTIAL, stdout);
}

function extraEnvironment(plugin: Fields): Record<string, string> {
  const list = Array.isArray(plugin.env) ? (plugin.env as readonly { name?: unknown; value?: unknown }[]) : [];
  return Object.fromEntries(list.map(({ name, value }) => [String(name), String(value ?? "")]));
}

/** `provideClusterInfo` passes the cluster entry, with its CA inline and its plugin settings. */
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
    ...defined({ config }),
  };
}

type Fields = Readonly<Record<string, unknown>>;

interface Entry {
  /** Error messages use this name, for example `user admin`. */
  readonly title: string;
  /** Paths in the entry are relative to this folder, which contains the kubeconfig. */
  readonly folder: string;
  readonly fields: Fields;
}

interface Credentials {
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsOptions;
}

/** `<name>-data` contains base64 of the PEM and takes precedence over the file `<name>`. */
function pem(owner: Entry, name: string): string | undefined {
  const data = text(owner.fields[`${name}-data`]);
  const file = text(owner.fields[name]);
  if (data === undefined && file === undefined) return undefined;
  const value = data === undefined ? readBeside(owner, file ?? "") : Buffer.from(data, "base64").toString();
  if (value.includes("-----BEGIN ")) return value;
  throw new KubeconfigError(
    `${data === undefined ? name : `${name}-data`} of ${owner.title} in the kubeconfig is not in PEM form`,
  );
}

function readBeside(owner: Entry, file: string): string {
  try {
    return readFileSync(resolve(owner.folder, file), "utf8");
  } catch (error) {
    throw new KubeconfigError(`cannot read ${file} of ${owner.title} in the kubeconfig: ${(error as Error).message}`);
  }
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

export class KubeconfigError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "KubeconfigError";
  }
}

export interface PluginHost {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** True if a user can respond to a prompt. */
  readonly isInteractive: boolean;
  err(text: string): void;
}

export interface KubeconfigFlags {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespace?: string;
}
