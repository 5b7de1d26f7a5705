/**
 * `gateway controller` watches the cluster, deploys data planes, publishes snapshots to them, and writes the status
 * of each resource.
 */

import type { Clock, Timer } from "../base/clock.ts";
import { type KubernetesObject, keyOf, objectKey } from "../config/documents/cluster.ts";
import type { Verdict } from "../config/documents/documents.ts";
import { isVerdict } from "../config/documents/gateway-parameters.ts";
import { gatewayKey } from "../config/documents/snapshot.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { hostToConnect } from "../http/host.ts";
import type { Logger } from "../record/log/logger.ts";
import { type ApiClient, ApiError } from "./api-client.ts";
import { AUTOSCALER_KIND, AUTOSCALERS, DEPLOYMENTS, KINDS, openClusterCache } from "./cluster-cache.ts";
import { type ClusterView, createClusterView } from "./cluster-snapshots.ts";
import { CERTIFICATE_NAME, controllerCertificate, restoreCertificate } from "./controller-certificate.ts";
import {
  accountOf,
  addressConflict,
  createDeployer,
  type DeployOptions,
  dataPlaneManifests,
  deployedName,
  nameConflict,
  staleDeployments,
} from "./data-plane-deployment.ts";
import { debounce } from "./debounce.ts";
import { createHeldObjects } from "./held-objects.ts";
import { electLeader, type Leader } from "./leader-election.ts";
import { createPeerReporter } from "./peer-reports.ts";
import { addressesOf, missingAddress } from "./service-addresses.ts";
import { openSnapshotServer, replicaAddress, type SnapshotServer } from "./snapshot-server.ts";
import { createStatusWriter, desiredStatuses, type GatewayState, heldStatuses, waitingStatuses } from "./status.ts";
import { createTokenReviews } from "./token-reviews.ts";

const QUIET_MS = 50;
const LONGEST_MS = 500;
const RETRY_MS = 2_000;
/** After a first new version, the Gateway status is written when all data planes have acknowledged the latest one, or after this time. */
const SETTLING_MS = 2_000;
/** A Gateway stays Programmed for this time without a known data plane. */
const UNSERVED_MS = 15_000;
const PROTECTIONS = new Set(KINDS.filter(({ isProtection }) => isProtection === true).map(({ kind }) => kind));
const LEASE_NAME = "gateway-controller";

export interface ControllerOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  readonly namespace: string;
  readonly identity: string;
  readonly listen: { readonly host: string; readonly port: number };
  readonly host: string;
  readonly url: string;
  /** Undefined if the controller does not deploy data planes. */
  readonly deploy: Pick<DeployOptions, "image" | "replicas" | "serviceType" | "backendNetworks"> | undefined;
}

export interface ControllerState {
  readonly waitingFor: readonly string[];
  readonly unreadable: readonly string[];
  /** Counts the Gateways and routes that wait until policies can be read. */
  readonly held: number;
  readonly isLeader: boolean;
  readonly isConnected: boolean;
  readonly gateways: number;
  readonly deployFailures: number;
  readonly statusWrites: number;
  readonly reconcileMs: number;
}

export interface Controller {
  /** True while snapshots are published and the API server responds. */
  isReady(): boolean;
  readonly port: number;
  state(): ControllerState;
  stop(): Promise<void>;
}

export async function startController(options: ControllerOptions): Promise<Controller> {
  const { client, clock, logger } = options;
  const hostname = hostToConnect(new URL(options.url));
  const certificate = await controllerCertificate(client, clock, options.namespace, [hostname]);
  const isLeader = (): boolean => leader?.isLeader() === true;
  const isConnected = (): boolean => leader?.isConnected() !== false;
  const writer = createStatusWriter(client, logger, isLeader);
  const deployer = createDeployer(client, logger, isLeader);
  let leader: Leader | undefined;
  let isPublished = false;
  let ledSinceMs = 0;
  const heldObjects = createHeldObjects();
  let held: readonly KubernetesObject[] = [];
  const deployFailures = new Map<string, Verdict>();
  const servedMs = new Map<string, number>();
  const versions = new Map<string, { readonly version: string; readonly sinceMs: number }>();
  let gateways: ReadonlyMap<string, KubernetesObject> = new Map();
  let reconcileMs = 0;
  let retry: Timer | undefined;
  let view: ClusterView | undefined;

  const reconciles = debounce(clock, QUIET_MS, LONGEST_MS, reconcile, (error) =>
    logger.error("reconcile failed", { reason: (error as Error).stack ?? String(error) }),
  );
  const retryAfter = (ms: number): void => {
    retry?.cancel();
    retry = clock.after(ms, reconciles.soon);
  };
  const cache = openClusterCache(options.deploy ? [...KINDS, DEPLOYMENTS, AUTOSCALERS] : KINDS, {
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
  const server: SnapshotServer = await openSnapshotServer({
    ...options.listen,
    replicaHost: options.host,
    tls: certificate,
    reviews: createTokenReviews(client, clock),
    clock,
    logger,
    isReady: () => isPublished,
    isConnected,
    accountOf(key) {
      const gateway = gateways.get(key);
      return gateway && accountOf(gateway);
    },
    changed() {
      reporter.soon();
      reconciles.soon();
    },
    // Reports are not forwarded: replicas that take each other, or themselves, for the leader would never stop.
    reported: reconciles.soon,
  });
  const reporter = createPeerReporter({
    clock,
    logger,
    tls: certificate,
    hostname,
    identity: options.identity,
    leaderAddress: () => leader?.leaderAddress(),
    report: server.report,
  });
  leader = electLeader({
    ...options,
    name: LEASE_NAME,
    address: replicaAddress(options.host, server.port),
    changed() {
      if (isLeader()) ledSinceMs = clock.monotonicMs();
      reporter.soon();
      reconciles.soon();
    },
    reconnected: cache.reconnect,
  });

  async function reconcile(): Promise<void> {
    if (!cache.isSynced()) return reportWaiting();
    view ??= refreshView();
    if (!isLeader()) return;
    await keepCertificate();
    await report(view);
  }

  /** Without the Secret, a replica that restarts would create another certificate, which data planes do not trust. */
  async function keepCertificate(): Promise<void> {
    const exists = cache
      .of("Secret")
      .some(({ metadata: { name, namespace } }) => name === CERTIFICATE_NAME && namespace === options.namespace);
    if (exists) return;
    try {
      await restoreCertificate(client, options.namespace, certificate);
      logger.warn("Secret with the certificate was deleted; created again", { secret: CERTIFICATE_NAME });
    } catch (error) {
      // Another replica created it, or the cache is not up to date.
      if (error instanceof ApiError && error.status === 409) return;
      logger.warn("Secret with the certificate cannot be created", { reason: (error as Error).message });
    }
  }

  /** Without the policies nothing is published, but the Gateways show the reason. */
  async function reportWaiting(): Promise<void> {
    const waitingFor = cache.waitingFor();
    if (!isLeader() || !waitingFor.every((kind) => PROTECTIONS.has(kind))) return;
    const { gateways: own } = createClusterView(cache.all(), clock.now());
    if (await writer.write(waitingStatuses(own, waitingFor, clock.now()))) retryAfter(RETRY_MS);
  }

  function refreshView(): ClusterView {
    const beganMs = clock.monotonicMs();
    const split = heldObjects.split(cache.all(), cache.unreadable().length === 0);
    held = split.held;
    const fresh = createClusterView(split.usable, clock.now(), options.deploy?.replicas);
    gateways = new Map(fresh.gateways.map((gateway) => [gatewayKey(gateway), gateway]));
    for (const [key, { version }] of fresh.snapshots) {
      const before = versions.get(key);
      if (before?.version === version) continue;
      // The time does not restart while changes arrive faster than acknowledgments, or no status would be written.
      const sinceMs = before && isUnacknowledged(key, before.version) ? before.sinceMs : clock.monotonicMs();
      versions.set(key, { version, sinceMs });
    }
    server.publish(fresh.snapshots);
    isPublished = true;
    reconcileMs = clock.monotonicMs() - beganMs;
    return fresh;
  }

  async function report(view: ClusterView): Promise<void> {
    let isIncomplete = false;
    if (options.deploy) {
      const deploy = {
        ...options.deploy,
        controllerUrl: options.url,
        certificate: certificate.cert,
        digestKey: certificate.key,
      };
      const exists = existsIn(cache.all());
      deployFailures.clear();
      const autoscaled = new Set<string>();
      for (const gateway of view.gateways) {
        const parameters = view.parameters.get(gatewayKey(gateway));
        const isKept = gateway.metadata.deletionTimestamp !== undefined || !isAccepted(gateway, view);
        const deployedKey = keyOf(gateway.metadata.namespace ?? "", deployedName(gateway));
        // A Gateway that is not accepted, or has invalid parameters, keeps its data plane as it is.
        if (isKept || parameters === undefined || isVerdict(parameters)) {
          autoscaled.add(deployedKey);
          continue;
        }
        if (parameters.autoscaling) autoscaled.add(deployedKey);
        const manifests = dataPlaneManifests(gateway, deploy, parameters, portsOfSets(view, gateway));
        const conflict = nameConflict(gateway, cache.of("Service")) ?? addressConflict(gateway, deploy, parameters);
        const result = conflict ? { isIncomplete: false, refused: conflict } : await deployer.apply(manifests, exists);
        isIncomplete ||= result.isIncomplete;
        if (result.refused) deployFailures.set(gatewayKey(gateway), result.refused);
      }
      const isOurs = (gateway: KubernetesObject): boolean => gateways.has(gatewayKey(gateway));
      for (const deployment of staleDeployments(cache.of("Deployment"), cache.of("Gateway"), isOurs))
        isIncomplete = (await deployer.remove(deployment)) || isIncomplete;
      for (const autoscaler of cache.of(AUTOSCALER_KIND))
        if (!autoscaled.has(objectKey(autoscaler)))
          isIncomplete = (await deployer.removeAutoscaler(autoscaler)) || isIncomplete;
    }
    const nowMs = clock.monotonicMs();
    for (const key of view.gateways.map(gatewayKey))
      if (server.instances(key).some(({ ack }) => ack !== undefined)) servedMs.set(key, nowMs);
    const settling = new Set(view.gateways.map(gatewayKey).filter(isSettling));
    const desired = desiredStatuses(view, (key) => stateOf(key), clock.now(), cache.unreadable()).filter(
      ({ gateway }) => gateway === undefined || !settling.has(gateway),
    );
    const statuses = [...desired, ...heldStatuses(held, view, cache.unreadable(), clock.now())];
    isIncomplete = (await writer.write(statuses)) || isIncomplete;
    if (isIncomplete) retryAfter(RETRY_MS);
    else if (settling.size > 0) retryAfter(SETTLING_MS);
    else if (view.gateways.some(isHeld)) retryAfter(RETRY_MS);
  }

  /** True for a Gateway whose data planes disconnected recently, or have not yet reported to a new leader. */
  function isHeld(gateway: KubernetesObject): boolean {
    const key = gatewayKey(gateway);
    const sinceMs = Math.max(ledSinceMs, servedMs.get(key) ?? Number.NEGATIVE_INFINITY);
    return (
      isProgrammed(gateway) &&
      clock.monotonicMs() - sinceMs < UNSERVED_MS &&
      !server.instances(key).some(({ ack }) => ack !== undefined)
    );
  }

  function isSettling(key: string): boolean {
    const current = versions.get(key);
    if (current === undefined || clock.monotonicMs() - current.sinceMs > SETTLING_MS) return false;
    return isUnacknowledged(key, current.version);
  }

  function isUnacknowledged(key: string, version: string): boolean {
    return server.instances(key).some(({ ack }) => ack?.version !== version);
  }

  function stateOf(key: string): GatewayState {
    const gateway = gateways.get(key);
    const instances = server.instances(key);
    const refused = new Map(instances.flatMap(({ ack }) => ack?.refused ?? []).map((one) => [one.policy, one.message]));
    const addresses = gateway ? addressesOf(gateway, cache.of("Service"), cache.of("EndpointSlice")) : [];
    const isServed = gateway !== undefined && isHeld(gateway);
    const failure = deployFailures.get(key) ?? missingAddress(gateway, addresses);
    if (failure) return { programmed: failure, addresses, refused };
    const programmed = isServed ? SERVED : programmedOf(instances, addresses.length, options.deploy !== undefined);
    return { programmed, addresses, refused };
  }

  return {
    isReady: () => isPublished && isConnected(),
    port: server.port,
    state: () => ({
      waitingFor: cache.waitingFor(),
      unreadable: cache.unreadable(),
      held: held.length,
      isLeader: isLeader(),
      isConnected: isConnected(),
      gateways: gateways.size,
      deployFailures: deployFailures.size,
      statusWrites: writer.written(),
      reconcileMs: Math.round(reconcileMs),
    }),
    async stop() {
      reconciles.stop();
      retry?.cancel();
      cache.stop();
      reporter.stop();
      server.close();
      await leader?.stop();
      client.close();
    },
  };
}

function isAccepted(gateway: KubernetesObject, view: ClusterView): boolean {
  return view.result.gatewayOutcomes.some(({ document, accepted }) => document.value === gateway && accepted.isTrue);
}

function portsOfSets({ result }: ClusterView, gateway: KubernetesObject): number[] {
  return result.listenerSetOutcomes
    .filter((set) => keyOf(set.gateway.namespace, set.gateway.name) === gatewayKey(gateway))
    .flatMap(({ ports }) => ports);
}

/** Returns undefined for kinds that are not watched. */
function existsIn(objects: readonly KubernetesObject[]): (kind: string, key: string) => boolean | undefined {
  const watched = new Set(["Service", "Deployment", AUTOSCALER_KIND]);
  const known = new Set(
    objects.filter(({ kind }) => watched.has(kind)).map((object) => `${object.kind} ${objectKey(object)}`),
  );
  return (kind, key) => (watched.has(kind) ? known.has(`${kind} ${key}`) : undefined);
}

const SERVED: Verdict = { isTrue: true, reason: "Programmed", message: "Served" };

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
  return SERVED;
}

function isProgrammed(gateway: KubernetesObject): boolean {
  const conditions = listOf(fieldsOf(gateway.status).conditions).map(fieldsOf);
  return conditions.some(({ type, status }) => type === "Programmed" && status === "True");
}
