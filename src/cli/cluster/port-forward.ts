/**
 * One connection to a port of a pod, through the Kubernetes API server's port-forward over a WebSocket
 * (subprotocol v4.channel.k8s.io): byte 0 of every message is its channel, 0 for data and 1 for errors, and the first
 * message of each channel only repeats the port.
 */
import { Duplex } from "node:stream";
import { openWebSocket } from "../../lib/http/websocket.ts";
import type { Cluster } from "../../lib/kubeconfig/kubeconfig.ts";
import { CliError } from "../terminal/cli-error.ts";

const DATA_CHANNEL = 0;
const ERROR_CHANNEL = 1;
const PROTOCOL = "v4.channel.k8s.io";

export function portForwardPath(cluster: Cluster, pod: string, port: number): string {
  return `/api/v1/namespaces/${encodeURIComponent(cluster.namespace)}/pods/${pod}/portforward?ports=${port}`;
}

/** Rejects when the upgrade does; the reason is then a plain request away. */
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

  // The library takes whatever it is given, so there is nothing to wait for on either side.
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
