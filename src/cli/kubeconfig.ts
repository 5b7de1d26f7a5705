/**
 * A kubeconfig as far as reaching a cluster needs it: the API server, its certificate authority, and the user's
 * token, client certificate, password or credential plugin. Loaded only for targets in a cluster.
 */
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { parse } from "yaml";
import type { TlsOptions } from "../lib/http-client.ts";
import { CliError } from "./cli-error.ts";
import { runProgram } from "./run-program.ts";
import type { TargetFlags } from "./target.ts";
import type { Terminal } from "./terminal.ts";

export interface Cluster {
  readonly server: string;
  readonly namespace: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsOptions;
}

type Fields = Readonly<Record<string, unknown>>;
interface Named {
  readonly name: string;
  /** The folder of its file: paths in it are relative to that. */
  readonly folder: string;
  readonly fields: Fields;
}

export async function loadCluster(flags: TargetFlags, terminal: Terminal): Promise<Cluster> {
  const files = kubeconfigFiles(flags, terminal);
  const documents = files.flatMap((file) => readKubeconfig(file, files.length > 1 && flags.kubeconfig === undefined));
  if (documents.length === 0) throw new CliError(`no kubeconfig at ${files.join(", ")}: use --kubeconfig <file>`);
  const contextName = flags.context ?? documents.map(({ fields }) => fields["current-context"]).find(Boolean);
  if (typeof contextName !== "string")
    throw new CliError("the kubeconfig has no current-context: use --context <name>");
  const context = find(documents, "contexts", "context", contextName);
  const cluster = find(documents, "clusters", "cluster", String(context.fields.cluster));
  const user = find(documents, "users", "user", String(context.fields.user));
  const { server } = cluster.fields;
  if (typeof server !== "string") throw new CliError(`cluster ${cluster.name} has no server`);
  const { headers, tls } = await credentials(user, terminal);
  return {
    server: server.replace(/\/$/, ""),
    namespace: flags.namespace ?? text(context.fields.namespace) ?? "default",
    headers,
    tls: { ...serverTls(cluster), ...tls },
  };
}

function kubeconfigFiles(flags: TargetFlags, { environment }: Terminal): string[] {
  if (flags.kubeconfig !== undefined) return [flags.kubeconfig];
  const listed = environment.KUBECONFIG?.split(process.platform === "win32" ? ";" : ":").filter(Boolean) ?? [];
  if (listed.length > 0) return listed;
  return [join(environment.HOME ?? environment.USERPROFILE ?? ".", ".kube", "config")];
}

function readKubeconfig(file: string, mayBeAbsent: boolean): Named[] {
  let source: string;
  try {
    source = readFileSync(file, "utf8");
  } catch (error) {
    if (mayBeAbsent) return [];
    throw new CliError(`cannot read the kubeconfig ${file}: ${(error as Error).message}`);
  }
  let fields: unknown;
  try {
    fields = parse(source);
  } catch (error) {
    throw new CliError(`${file} is not YAML: ${(error as Error).message.split("\n", 1)[0]}`);
  }
  return typeof fields === "object" && fields !== null
    ? [{ name: file, folder: dirname(resolve(file)), fields: fields as Fields }]
    : [];
}

/** In several files, the first that has a name wins. */
function find(documents: readonly Named[], list: string, key: string, name: string): Named {
  for (const { folder, fields } of documents) {
    const entries = Array.isArray(fields[list]) ? (fields[list] as readonly Fields[]) : [];
    const entry = entries.find((one) => one.name === name);
    if (entry) return { name, folder, fields: (entry[key] ?? {}) as Fields };
  }
  throw new CliError(`the kubeconfig has no ${key} named ${name}`);
}

function serverTls(cluster: Named): TlsOptions {
  const ca = pem(cluster, "certificate-authority");
  const servername = text(cluster.fields["tls-server-name"]);
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(servername === undefined ? {} : { servername }),
    ...(cluster.fields["insecure-skip-tls-verify"] === true ? { insecure: true } : {}),
  };
}

async function credentials(user: Named, terminal: Terminal): Promise<Pick<Cluster, "headers" | "tls">> {
  const { fields } = user;
  const tokenFile = text(fields.tokenFile);
  const token = tokenFile === undefined ? text(fields.token) : readBeside(user, tokenFile).trim();
  if (token !== undefined) return { headers: { authorization: `Bearer ${token}` }, tls: {} };
  const cert = pem(user, "client-certificate");
  const key = pem(user, "client-key");
  if (cert !== undefined && key !== undefined) return { headers: {}, tls: { cert, key } };
  const username = text(fields.username);
  if (username !== undefined) {
    const encoded = Buffer.from(`${username}:${text(fields.password) ?? ""}`).toString("base64");
    return { headers: { authorization: `Basic ${encoded}` }, tls: {} };
  }
  return fields.exec === undefined ? { headers: {}, tls: {} } : runPlugin(user, fields.exec as Fields, terminal);
}

/** The credential plugins of cloud providers (client.authentication.k8s.io): they print a token or a certificate. */
async function runPlugin(user: Named, plugin: Fields, terminal: Terminal): Promise<Pick<Cluster, "headers" | "tls">> {
  const command = String(plugin.command);
  const args = Array.isArray(plugin.args) ? plugin.args.map(String) : [];
  const extra = (Array.isArray(plugin.env) ? plugin.env : []) as readonly { name: string; value: string }[];
  const info = { apiVersion: plugin.apiVersion, kind: "ExecCredential", spec: { interactive: false } };
  const environment = {
    ...terminal.environment,
    ...Object.fromEntries(extra.map(({ name, value }) => [name, value])),
    KUBERNETES_EXEC_INFO: JSON.stringify(info),
  };
  const path = command.includes("/") ? resolve(user.folder, command) : command;
  const run = await runProgram(path, args, { environment, inheritStdin: false }).catch((error: Error) => {
    throw new CliError(`the kubeconfig's credential plugin ${command} cannot run: ${error.message}`);
  });
  if (run.code !== 0) throw new CliError(`the credential plugin ${command} failed: ${run.stderr.trim().slice(0, 300)}`);
  let status: Fields = {};
  try {
    status = (JSON.parse(run.stdout) as { status?: Fields }).status ?? {};
  } catch {
    // Falls through: without a status there is no credential.
  }
  const token = text(status.token);
  if (token !== undefined) return { headers: { authorization: `Bearer ${token}` }, tls: {} };
  const cert = text(status.clientCertificateData);
  const key = text(status.clientKeyData);
  if (cert === undefined || key === undefined)
    throw new CliError(`the credential plugin ${command} gave neither a token nor a certificate`);
  return { headers: {}, tls: { cert, key } };
}

/** `<name>-data` is base64 of the PEM text, `<name>` a file. */
function pem(owner: Named, name: string): string | undefined {
  const data = text(owner.fields[`${name}-data`]);
  if (data !== undefined) return Buffer.from(data, "base64").toString();
  const file = text(owner.fields[name]);
  return file === undefined ? undefined : readBeside(owner, file);
}

function readBeside(owner: Named, file: string): string {
  try {
    return readFileSync(resolve(owner.folder, file), "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${file} of the kubeconfig: ${(error as Error).message}`);
  }
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
