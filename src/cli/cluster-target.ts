/**
 * A gateway in a cluster: `gateway/<name>` finds its pods by the label of the Gateway API, `pod/<name>` names one.
 * Its admin interface, which listens on loopback only, is reached through the API server's port-forward.
 */
import { createServer, type Server } from "node:net";
import { openFetcher } from "../lib/fetch.ts";
import { createAdminClient } from "./admin-client.ts";
import { CliError, usageError } from "./cli-error.ts";
import { type Cluster, loadCluster } from "./kubeconfig.ts";
import { openPortForward } from "./port-forward.ts";
import type { Target, TargetFlags } from "./target.ts";
import type { Terminal } from "./terminal.ts";

/** Set on the pods of a Gateway (GEP-1762). */
const GATEWAY_LABEL = "gateway.networking.k8s.io/gateway-name";
const NAME = /^(?:(gateway|gateways|gtw|pod|pods)\/)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)$/;
const LIST_TIMEOUT_MS = 10_000;
const MAX_LIST_BYTES = 16 * 1024 * 1024;

export async function openClusterTarget(
  name: string,
  adminPort: number,
  flags: TargetFlags,
  terminal: Terminal,
): Promise<Target> {
  const [, kind = "gateway", resource] = NAME.exec(name) ?? [];
  if (resource === undefined)
    throw usageError(`${name} is not gateway/<name> or pod/<name>; for this machine use --local`);
  const cluster = await loadCluster(flags, terminal);
  const pod = kind.startsWith("pod") ? resource : await findPod(cluster, resource, terminal);
  const servers: Server[] = [];
  const admin = createAdminClient({
    display: `${cluster.namespace}/${pod}`,
    connect: () => openPortForward(cluster, pod, adminPort),
    close: () => {
      for (const server of servers) server.close();
    },
  });
  return {
    admin,
    async listenerPort(port) {
      const server = await forwardLocally(cluster, pod, port);
      servers.push(server.server);
      return server.port;
    },
  };
}

async function findPod(cluster: Cluster, gateway: string, terminal: Terminal): Promise<string> {
  const fetcher = openFetcher(terminal.clock);
  const query = new URLSearchParams({ labelSelector: `${GATEWAY_LABEL}=${gateway}` });
  const path = `/api/v1/namespaces/${cluster.namespace}/pods?${query}`;
  try {
    const answer = await fetcher.fetch({
      url: `${cluster.server}${path}`,
      headers: cluster.headers,
      tls: cluster.tls,
      timeoutMs: LIST_TIMEOUT_MS,
      maxBytes: MAX_LIST_BYTES,
    });
    if (answer.status !== 200) throw new CliError(`the cluster answered ${answer.status}: ${reasonOf(answer.body)}`);
    const { items = [] } = JSON.parse(answer.body.toString()) as { items?: readonly Pod[] };
    const running = items.filter(({ status }) => status?.phase === "Running").map(({ metadata }) => metadata.name);
    const [first] = running.sort();
    if (first !== undefined) return first;
    throw new CliError(
      `no running pod of gateway ${gateway} in namespace ${cluster.namespace} (label ${GATEWAY_LABEL}): use -n <namespace> or pod/<name>`,
    );
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError(`cannot reach the cluster at ${cluster.server}: ${(error as Error).message}`);
  } finally {
    fetcher.close();
  }
}

interface Pod {
  readonly metadata: { readonly name: string };
  readonly status?: { readonly phase?: string };
}

function reasonOf(body: Buffer): string {
  try {
    return String((JSON.parse(body.toString()) as { message?: unknown }).message);
  } catch {
    return body.toString().slice(0, 200);
  }
}

/** A loopback port whose connections go to the pod: for the request that inject mode sends. */
function forwardLocally(cluster: Cluster, pod: string, port: number): Promise<{ server: Server; port: number }> {
  const server = createServer((client) => {
    client.on("error", () => undefined);
    openPortForward(cluster, pod, port).then(
      (upstream) => {
        upstream.on("error", () => client.destroy());
        client.on("close", () => upstream.destroy());
        client.pipe(upstream).pipe(client);
      },
      () => client.destroy(),
    );
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      resolve({ server, port: typeof address === "object" && address ? address.port : 0 });
    });
  });
}
