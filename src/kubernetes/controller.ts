/**
 * `gateway controller` watches the cluster, deploys data planes, publishes snapshots to them, and writes the status of
 * each resource. Every reconcile computes its result from the cache alone, so a restart loses nothing.
 */

import type { Clock, Timer } from "../base/clock.ts";
import { type KubernetesObject, objectKey, specOf } from "../config/documents/cluster.ts";
import type { Verdict } from "../config/documents/documents.ts";
import { gatewayKey } from "../config/documents/snapshot.ts";
import { fieldsOf, listOf, textOf } from "../config/text/value-shapes.ts";
import type { Logger } from "../observe/log/logger.ts";
import type { ApiClient } from "./api-client.ts";
import { DEPLOYMENTS, KINDS, openClusterCache } from "./cluster-cache.ts";
import { type ClusterView, createClusterView } from "./cluster-snapshots.ts";
import { controllerCertificate } from "./controller-certificate.ts";
import {
  accountOf,
  createDeployer,
  type DeployOptions,
  dataPlaneManifests,
  deployedName,
} from "./data-plane-deployment.ts";
import { debounce } from "./debounce.ts";
import { electLeader } from "./leader-election.ts";
import { createTokenReviews, openSnapshotServer, type SnapshotServer } from "./snapshot-server.ts";
import { createStatusWriter, desiredStatuses, type GatewayState } from "./status.ts";

const QUIET_MS = 50;
const LONGEST_MS = 500;
const RETRY_MS = 2_000;
/** Data planes have this long to acknowledge a new version before the Gateway status shows a missing acknowledgment. */
const SETTLING_MS = 2_000;
const LEASE_NAME = "gateway-controller";

export interface ControllerOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  /** The controller's own namespace contains its Lease and its certificate. */
  readonly namespace: string;
  readonly identity: string;
  readonly listen: { readonly host: string; readonly port: number };
  readonly url: string;
  /** Undefined if the controller does not deploy data planes. */
  readonly deploy: Pick<DeployOptions, "image" | "replicas" | "serviceType"> | undefined;
}

export interface Controller {
  isReady(): boolean;
  state(): Record<string, unknown>;
  stop(): Promise<void>;
}

export async function startController(options: ControllerOptions): Promise<Controller> {
  const { client, clock, logger } = options;
  const certificate = await controllerCertificate(client, clock, options.namespace, [
    new URL(options.url).hostname.replace(/^\[|\]$/g, ""),
  ]);
  const writer = createStatusWriter(client, logger);
  const deployer = createDeployer(client, logger);
  const versions = new Map<string, { readonly version: string; readonly sinceMs: number }>();
  let gateways: ReadonlyMap<string, KubernetesObject> = new Map();
  let reconcileMs = 0;
  let retry: Timer | undefined;
  /** The view is reset when a watched object changes, but not after status changes or acknowledgments. */
  let view: ClusterView | undefined;

  const reconciles = debounce(clock, QUIET_MS, LONGEST_MS, reconcile, (error) =>
    logger.error("reconcile failed", { reason: (error as Error).stack ?? String(error) }),
  );
  const retryAfter = (ms: number): void => {
    retry?.cancel();
    retry = clock.after(ms, reconciles.soon);
  };
  const cache = openClusterCache(options.deploy ? [...KINDS, DEPLOYMENTS] : KINDS, {
    client,
    clock,
    logger,
    random: options.random,
    changed() {
      view = undefined;
      reconciles.soon();
    },
    statusChanged: reconciles.soon,
  });
  const leader = electLeader({
    ...options,
    name: LEASE_NAME,
    changed: reconciles.soon,
  });
  const server: SnapshotServer = await openSnapshotServer({
    ...options.listen,
    tls: certificate,
    reviews: createTokenReviews(client, clock),
    clock,
    logger,
    isLeader: leader.isLeader,
    accountOf(key) {
      const gateway = gateways.get(key);
      return gateway && accountOf(gateway);
    },
    changed: reconciles.soon,
  });

  async function reconcile(): Promise<void> {
    if (!cache.isSynced()) return;
    view ??= refreshView();
    if (leader.isLeader()) await report(view);
  }

  function refreshView(): ClusterView {
    const beganMs = clock.monotonicMs();
    const fresh = createClusterView(cache.all(), clock.now());
    gateways = new Map(fresh.gateways.map((gateway) => [gatewayKey(gateway), gateway]));
    for (const [key, { version }] of fresh.snapshots)
      if (versions.get(key)?.version !== version) versions.set(key, { version, sinceMs: clock.monotonicMs() });
    server.publish(fresh.snapshots);
    reconcileMs = clock.monotonicMs() - beganMs;
    return fresh;
  }

  async function report(view: ClusterView): Promise<void> {
    let isIncomplete = false;
    if (options.deploy) {
      const deploy = { ...options.deploy, controllerUrl: options.url, certificate: certificate.cert };
      const exists = existsIn(cache.all());
      for (const gateway of view.gateways)
        if (gateway.metadata.deletionTimestamp === undefined && isAccepted(gateway, view))
          isIncomplete = (await deployer.apply(dataPlaneManifests(gateway, deploy), exists)) || isIncomplete;
    }
    const settling = new Set(view.gateways.map(gatewayKey).filter(isSettling));
    const statuses = desiredStatuses(view, (key) => stateOf(key), clock.now()).filter(
      ({ object }) => object.kind !== "Gateway" || !settling.has(objectKey(object)),
    );
    isIncomplete = (await writer.write(statuses)) || isIncomplete;
    if (isIncomplete) retryAfter(RETRY_MS);
    else if (settling.size > 0) retryAfter(SETTLING_MS);
  }

  function isSettling(key: string): boolean {
    const current = versions.get(key);
    if (current === undefined || clock.monotonicMs() - current.sinceMs > SETTLING_MS) return false;
    const instances = server.instances(key);
    return instances.length > 0 && instances.some(({ ack }) => ack?.version !== current.version);
  }

  function stateOf(key: string): GatewayState {
    const gateway = gateways.get(key);
    const instances = server.instances(key);
    const refused = new Map(instances.flatMap(({ ack }) => ack?.refused ?? []).map((one) => [one.policy, one.message]));
    const addresses = gateway ? addressesOf(gateway, cache.of("Service"), cache.of("EndpointSlice")) : [];
    return { programmed: programmedOf(instances, addresses.length, options.deploy !== undefined), addresses, refused };
  }

  return {
    isReady: cache.isSynced,
    state: () => ({
      waitingFor: cache.waitingFor(),
      isLeader: leader.isLeader(),
      gateways: gateways.size,
      statusWrites: writer.written(),
      reconcileMs: Math.round(reconcileMs),
    }),
    async stop() {
      reconciles.stop();
      retry?.cancel();
      cache.stop();
      server.close();
      await leader.stop();
      client.close();
    },
  };
}

function isAccepted(gateway: KubernetesObject, view: ClusterView): boolean {
  return view.result.gatewayOutcomes.some(({ document, accepted }) => document.value === gateway && accepted.isTrue);
}

/** Returns undefined for kinds that are not watched, for which the deployer applies only changed manifests. */
function existsIn(objects: readonly KubernetesObject[]): (kind: string, key: string) => boolean | undefined {
  const known = new Set(
    objects
      .filter(({ kind }) => kind === "Service" || kind === "Deployment")
      .map((object) => `${object.kind} ${objectKey(object)}`),
  );
  return (kind, key) => (kind === "Service" || kind === "Deployment" ? known.has(`${kind} ${key}`) : undefined);
}

function programmedOf(
  instances: SnapshotServer["instances"] extends (key: string) => infer List ? List : never,
  addresses: number,
  isDeployed: boolean,
): Verdict {
  const acknowledged = instances.filter(({ ack }) => ack !== undefined);
  const refusing = acknowledged.find(({ ack }) => ack?.isServed === false);
  if (refusing)
    return {
      isTrue: false,
      reason: "Invalid",
      message: `A data plane refused it: ${refusing.ack?.problems.join("; ") ?? ""}`,
    };
  if (acknowledged.length === 0) return { isTrue: false, reason: "Pending", message: "No data plane serves it yet" };
  if (addresses === 0 && isDeployed)
    return { isTrue: false, reason: "AddressNotAssigned", message: "Its Service has no address yet" };
  return { isTrue: true, reason: "Programmed", message: "Served" };
}

/**
 * Returns the addresses of the Service: those of its load balancer, its cluster IP, or the pods of a headless Service.
 */
function addressesOf(
  gateway: KubernetesObject,
  services: readonly KubernetesObject[],
  slices: readonly KubernetesObject[],
): GatewayState["addresses"] {
  const { namespace } = gateway.metadata;
  const name = deployedName(gateway);
  const service = services.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  if (!service) return [];
  const address = (value: string) => ({
    type: /^[\d.]+$|:/.test(value) ? ("IPAddress" as const) : ("Hostname" as const),
    value,
  });
  const { type, clusterIP } = specOf(service);
  if (type === "LoadBalancer") {
    const ingress = listOf(fieldsOf(fieldsOf(service.status).loadBalancer).ingress).map(fieldsOf);
    return ingress.flatMap(({ ip, hostname }) => textOf(ip) ?? textOf(hostname) ?? []).map(address);
  }
  if (clusterIP !== "None") return textOf(clusterIP) === undefined ? [] : [address(String(clusterIP))];
  const own = slices.filter(
    ({ metadata }) => metadata.namespace === namespace && metadata.labels?.["kubernetes.io/service-name"] === name,
  );
  const ready = own
    .flatMap((slice) => listOf(slice.endpoints).map(fieldsOf))
    .filter(({ conditions }) => fieldsOf(conditions).ready !== false)
    .flatMap(({ addresses }) => listOf(addresses).map(String));
  return [...new Set(ready)].sort().slice(0, 16).map(address);
}
