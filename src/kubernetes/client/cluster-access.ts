/**
 * How to reach the API server: from inside of a pod by its ServiceAccount, whose token is read again because it is
 * renewed in place, or by a kubeconfig, whose plugins are run again when the server no longer knows what they gave.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TlsOptions } from "../../http/http-client.ts";
import { KubeconfigError, type KubeconfigFlags, loadCluster, type PluginHost } from "../kubeconfig/kubeconfig.ts";

export interface Credentials {
  readonly server: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsOptions;
}

export interface ClusterAccess {
  /** The namespace of the pod, or of the kubeconfig's context. */
  readonly namespace: string;
  credentials(): Promise<Credentials>;
  /** The server refused what was shown: it is made anew next time. */
  refused(): void;
}

const ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

export interface AccessOptions extends PluginHost {
  readonly flags: KubeconfigFlags;
  /** For tests. */
  readonly accountFolder?: string;
}

export async function openClusterAccess(options: AccessOptions): Promise<ClusterAccess> {
  const { flags, environment } = options;
  const isNamed =
    flags.kubeconfig !== undefined || flags.context !== undefined || (environment.KUBECONFIG ?? "") !== "";
  const host = environment.KUBERNETES_SERVICE_HOST;
  if (!isNamed && host !== undefined && host !== "")
    return accountAccess(host, environment.KUBERNETES_SERVICE_PORT ?? "443", options.accountFolder ?? ACCOUNT_FOLDER);
  return kubeconfigAccess(flags, options);
}

function accountAccess(host: string, port: string, folder: string): ClusterAccess {
  const read = (name: string): string => {
    try {
      return readFileSync(join(folder, name), "utf8").trim();
    } catch (error) {
      throw new KubeconfigError(`cannot read the pod's ServiceAccount: ${(error as Error).message}`);
    }
  };
  const server = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
  return {
    namespace: read("namespace"),
    credentials: async () => ({
      server,
      headers: { authorization: `Bearer ${read("token")}` },
      tls: { ca: read("ca.crt") },
    }),
    refused: () => undefined,
  };
}

async function kubeconfigAccess(flags: KubeconfigFlags, host: PluginHost): Promise<ClusterAccess> {
  let loading = loadCluster(flags, host);
  const { namespace } = await loading;
  let isRefused = false;
  return {
    namespace,
    credentials() {
      if (isRefused) {
        isRefused = false;
        const before = loading;
        // A plugin that fails now may have given something that still works.
        loading = loadCluster(flags, host).catch(() => before);
      }
      return loading;
    },
    refused() {
      isRefused = true;
    },
  };
}
