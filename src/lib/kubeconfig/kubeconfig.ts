/**
 * A kubeconfig as kubectl reads it: several files merged, a context, its cluster, and what its user shows. What
 * kubectl takes and we cannot do (proxies, built-in providers) is refused by name: without it the cluster would only
 * answer 401, or nothing. Loaded only for targets in a cluster.
 */
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { parse } from "yaml";
import type { TlsOptions } from "../http/http-client.ts";
import { type Entry, type Fields, pem, type Shown, text } from "./kubeconfig-entry.ts";
import type { KubeconfigFlags, PluginHost } from "./kubeconfig-error.ts";
import { KubeconfigError } from "./kubeconfig-error.ts";
import { userCredentials } from "./kubeconfig-user.ts";

export interface Cluster extends Shown {
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
  // Like kubectl, nothing secret is sent in the clear; on this machine nobody listens in.
  const user = userName !== undefined && isPrivate(server) ? find(documents, "user", userName) : undefined;
  const shown = user === undefined ? { headers: {}, tls: {} } : await userCredentials(user, cluster, terminal);
  return {
    server: server.href.replace(/\/+$/, ""),
    namespace: flags.namespace ?? text(context.fields.namespace) ?? "default",
    headers: shown.headers,
    tls: { ...tls, ...shown.tls },
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
    fields = parse(source);
  } catch (error) {
    throw new KubeconfigError(`the kubeconfig ${file} is not YAML: ${(error as Error).message.split("\n", 1)[0]}`);
  }
  if (fields === null) return [];
  if (typeof fields !== "object" || Array.isArray(fields))
    throw new KubeconfigError(`${file} is not a kubeconfig: it has no clusters, users and contexts`);
  return [{ title: file, folder: dirname(resolve(file)), fields: fields as Fields }];
}

/** In several files, the first that has a name wins. */
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
    ...(ca === undefined ? {} : { ca }),
    ...(servername === undefined ? {} : { servername }),
    ...(insecure ? { insecure } : {}),
  };
}

function isPrivate({ protocol, hostname }: URL): boolean {
  return protocol === "https:" || /^(?:localhost|\[::1\]|127(?:\.\d{1,3}){3})$/.test(hostname);
}
