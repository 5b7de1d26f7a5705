/**
 * Connects to a gateway in a cluster through the port-forward of the API server. `gateway/<name>` selects a running
 * pod by its Gateway API label, and `pod/<name>` names the pod.
 */
import { createServer, type Server } from "node:net";
import { Duplex } from "node:stream";
import { newForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { openWebSocket } from "../../http/websocket.ts";
import { readJson } from "../../json/read-json.ts";
import { type Cluster, loadCluster } from "../../kubernetes/kubeconfig.ts";
import { createAdminClient } from "../instance/admin-client.ts";
import type { Target, TargetFlags } from "../instance/target.ts";
import { CliError, type Terminal, usageError } from "../terminal/terminal.ts";
import { reasonOf, requestCluster } from "./cluster-request.ts";

const LIST = peerInput("kubernetes-api/response");

/** GEP-1762 defines this label. */
const GATEWAY_LABEL = "gateway.networking.k8s.io/gateway-name";
const NAME = /^(?:(gateway|gateways|gtw|pod|pods)\/)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)$/;

export async function openClusterTarget(
  name: string,
  adminPort: number,
  flags: TargetFlags,
  terminal: Terminal,
): Promise<Target> {
  const [, kind = "gateway", resource] = NAME.exec(name) ?? [];
  if (resource === undefined)
    throw usageError(`${name} is not gateway/<name> or pod/<name>; for this machine use --local`);
  const cluster = await loadCluster(flags, terminal).catch((error: Error) => {
    throw new CliError(`${name} names a gateway in a cluster, and ${error.message}`);
  });
  const pod = kind.startsWith("pod") ? resource : await findPod(cluster, resource, terminal);
  const forward: Forward = (port) =>
    openPortForward(cluster, pod, port).catch(async (error: Error) => {
      const why = await rejectionReason(cluster, portForwardPath(cluster, pod, port), error, terminal);
      throw new CliError(`cannot forward to pod ${pod} in ${cluster.namespace}: ${why}`);
    });
  const servers: Server[] = [];
  const admin = createAdminClient({
    display: `${cluster.namespace}/${pod}`,
    connect: () => forward(adminPort),
    close: () => {
      for (const server of servers) server.close();
    },
  });
  return {
    admin,
    async listenerPort(port) {
      const server = await forwardLocally(() => forward(port));
      servers.push(server.server);
      return server.port;
    },
  };
}

async function findPod(cluster: Cluster, gateway: string, terminal: Terminal): Promise<string> {
  const query = newForm({ labelSelector: `${GATEWAY_LABEL}=${gateway}` });
  const path = `/api/v1/namespaces/${encodeURIComponent(cluster.namespace)}/pods?${query}`;
  const response = await requestCluster(cluster, path, terminal);
  if (response.status !== 200)
    throw new CliError(`the cluster responded with ${response.status}: ${reasonOf(response.body)}`);
  const running = podsOf(response.body, cluster)
    .filter(({ metadata, status }) => status?.phase === "Running" && metadata.deletionTimestamp === undefined)
    .sort((a, b) => Number(isReady(b)) - Number(isReady(a)) || (a.metadata.name < b.metadata.name ? -1 : 1));
  const [first] = running;
  if (first !== undefined) return first.metadata.name;
  throw new CliError(
    `no running pod of gateway ${gateway} in namespace ${cluster.namespace} (label ${GATEWAY_LABEL}): use -n <namespace> or pod/<name>`,
  );
}

/** Repeats the request without the WebSocket upgrade to get the reason from the API server. */
async function rejectionReason(cluster: Cluster, path: string, error: Error, terminal: Terminal): Promise<string> {
  const { status, body } = await requestCluster(cluster, path, terminal);
  if (status === 401 || status === 404) return `the cluster responded with ${status}: ${reasonOf(body)}`;
  if (status === 403)
    return `the cluster responded with 403: ${reasonOf(body)} (you need the permissions \`get\` and, since Kubernetes 1.35, \`create\` on pods/portforward)`;
  return `${error.message} (does a proxy in front of the cluster block WebSockets?)`;
}

type Forward = (port: number) => Promise<Duplex>;

interface Pod {
  readonly metadata: { readonly name: string; readonly deletionTimestamp?: string };
  readonly status?: {
    readonly phase?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

function podsOf(body: Buffer, cluster: Cluster): Pod[] {
  try {
    const { items } = readJson(LIST, body) as { items?: Pod[] };
    if (Array.isArray(items)) return items;
  } catch {
    // Invalid JSON is reported below.
  }
  throw new CliError(`${cluster.server} is not a Kubernetes API server`);
}

function isReady({ status }: Pod): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === "Ready" && is !== "True") !== true;
}

function forwardLocally(forward: () => Promise<Duplex>): Promise<{ server: Server; port: number }> {
  const server = createServer((client) => {
    client.on("error", () => undefined);
    forward().then(
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

// Port-forwarding uses a WebSocket with the subprotocol v4.channel.k8s.io. The first byte of each message is the
// channel: 0 for data, 1 for errors. The first message of each channel contains only the port.

const DATA_CHANNEL = 0;
const ERROR_CHANNEL = 1;
const PROTOCOL = "v4.channel.k8s.io";

export function portForwardPath(cluster: Cluster, pod: string, port: number): string {
  return `/api/v1/namespaces/${encodeURIComponent(cluster.namespace)}/pods/${pod}/portforward?ports=${port}`;
}

export async function openPortForward(cluster: Cluster, pod: string, port: number): Promise<Duplex> {
  const seen = new Set<number>();

  const socket = await openWebSocket(
    {
      url: `${cluster.server.replace(/^http/, "ws")}${portForwardPath(cluster, pod, port)}`,
      protocols: [PROTOCOL],
      headers: cluster.headers,
      tls: cluster.tls,
    },
    {
      message(bytes) {
        const channel = bytes[0] ?? -1;
        const payload = bytes.subarray(1);
        if (!seen.has(channel)) seen.add(channel);
        else if (channel === DATA_CHANNEL && payload.length > 0) duplex.push(payload);
        else if (channel === ERROR_CHANNEL && payload.length > 0)
          duplex.destroy(new CliError(`pod ${pod}, port ${port}: ${payload.toString().trim()}`));
      },
      closed: () => void duplex.push(null),
    },
  );

  const duplex = new Duplex({
    read: () => undefined,
    write(chunk: Buffer, _encoding, done) {
      socket.send(Buffer.concat([Buffer.of(DATA_CHANNEL), chunk]));
      done();
    },
    final(done) {
      done();
    },
    destroy(error, done) {
      socket.close();
      done(error);
    },
  });
  return duplex;
}
