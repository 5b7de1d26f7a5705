/**
 * Deploys the data plane of a Gateway by server-side apply: a ServiceAccount without permissions, a Deployment, a
 * Service, a disruption budget, and an autoscaler. The Gateway owns these objects, so they are deleted with it.
 */

import { createHash, createHmac } from "node:crypto";
import { isIP } from "node:net";
import { type KubernetesObject, keyOf, objectKey, specOf } from "../config/documents/cluster.ts";
import { type DataPlaneConfig, replaceSecrets } from "../config/documents/data-plane-config.ts";
import { DATA_PLANE_PORTS, GATEWAY_API_GROUP, POLICY_API_GROUP, type Verdict } from "../config/documents/documents.ts";
import { notUsable, requestedAddresses } from "../config/documents/gateway-addresses.ts";
import type { GatewayParameters } from "../config/documents/gateway-parameters.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { defined } from "../json/json.ts";
import type { Logger } from "../record/log/logger.ts";
import { type ApiClient, ApiError, WRITE_TIMEOUT_MS } from "./api-client.ts";
import { AUTOSCALER_KIND, AUTOSCALERS } from "./cluster-cache.ts";
import { DATA_PLANE_CONFIG, SECRET_VARIABLE } from "./process-config.ts";
import { TOKEN_AUDIENCE } from "./token-reviews.ts";

/** gwctl finds the pods of a Gateway by this label (GEP-1762). */
export const GATEWAY_LABEL = `${GATEWAY_API_GROUP}/gateway-name`;
const CLASS_LABEL = `${GATEWAY_API_GROUP}/gateway-class-name`;
export const MANAGED_BY = "gateway-controller";
const STATS_PORT = 15020;
const TOKEN_FOLDER = "/var/run/secrets/gateway";
const STATE_FOLDER = "/var/lib/gateway";
const MIB = 1024 * 1024;
const STATE_BYTES = 256 * MIB;
const CONFIG_SECRETS_FOLDER = "/var/run/secrets/gateway-config";
/** Changes with the values of Secrets in `spec.config`, which a data plane reads only at its start. */
const SECRETS_ANNOTATION = `${POLICY_API_GROUP}/config-secrets`;
/** Load balancers and kube-proxy send new connections to a pod for some time after its Service no longer lists it. */
const PRE_STOP_SECONDS = 5;
const DEFAULT_DRAIN_MS = 30_000;
/** The grace period is longer than the drain timeout and the `preStop` hook, so that the kubelet never kills a drain. */
const GRACE_SECONDS = PRE_STOP_SECONDS + 10;
const DEFAULT_CPU_UTILIZATION = 70;
const DEFAULT_RESOURCES = { requests: { cpu: "100m", memory: "128Mi" }, limits: { memory: "1Gi" } };

export interface DeployOptions {
  readonly image: string;
  readonly replicas: number;
  /** `None` creates a headless Service, so the Gateway has the addresses of its pods. */
  readonly serviceType: "LoadBalancer" | "NodePort" | "ClusterIP" | "None";
  readonly controllerUrl: string;
  readonly certificate: string;
  /** The key of digests of Secrets, so that nobody can guess the Secrets from the digests. */
  readonly digestKey: string;
  /** Backends and policies may name hosts in these private networks, a comma-separated list of CIDR blocks. */
  readonly backendNetworks: string;
}

export function deployedName(gateway: KubernetesObject): string {
  const name = `${gateway.metadata.name}-${String(specOf(gateway).gatewayClassName)}`;
  return name.length <= 63 ? name : name.slice(0, 63).replace(/[^a-z0-9]+$/, "");
}

export function accountOf(gateway: KubernetesObject): string {
  return `system:serviceaccount:${gateway.metadata.namespace ?? ""}:${deployedName(gateway)}`;
}

export function dataPlaneManifests(
  gateway: KubernetesObject,
  options: DeployOptions,
  parameters: GatewayParameters = {},
  portsOfSets: readonly number[] = [],
): KubernetesObject[] {
  const { metadata } = gateway;
  const namespace = metadata.namespace ?? "";
  const spec = specOf(gateway);
  const infrastructure = fieldsOf(spec.infrastructure);
  const name = deployedName(gateway);
  const selector = { [GATEWAY_LABEL]: metadata.name };
  const labels = {
    ...(fieldsOf(infrastructure.labels) as Record<string, string>),
    ...selector,
    [CLASS_LABEL]: String(spec.gatewayClassName),
    "app.kubernetes.io/managed-by": MANAGED_BY,
  };
  const annotations = fieldsOf(infrastructure.annotations) as Record<string, string>;
  const owner = {
    apiVersion: gateway.apiVersion,
    kind: "Gateway",
    name: metadata.name,
    uid: metadata.uid ?? "",
    controller: true,
    blockOwnerDeletion: true,
  };
  const common = { name, namespace, labels, annotations, ownerReferences: [owner] };
  const { replicas = options.replicas, serviceType = options.serviceType } = parameters;
  const isHeadless = serviceType === "None";
  const [address] = requestedAddresses(spec);
  const ports = servedPorts([...listOf(spec.listeners).map((listener) => fieldsOf(listener).port), ...portsOfSets]);
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: common, automountServiceAccountToken: false },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: common,
      spec: {
        // The field is omitted for one replica, so that an autoscaler can own it.
        ...(replicas === 1 || parameters.autoscaling ? {} : { replicas }),
        selector: { matchLabels: selector },
        template: {
          metadata: {
            labels: { ...parameters.podLabels, ...labels },
            annotations: {
              ...annotations,
              ...parameters.podAnnotations,
              ...secretsAnnotation(parameters.config, options.digestKey),
            },
          },
          spec: podSpec(name, `${namespace}/${metadata.name}`, selector, ports, options, parameters),
        },
      },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { ...common, annotations: { ...annotations, ...parameters.serviceAnnotations } },
      spec: {
        type: isHeadless ? "ClusterIP" : serviceType,
        ...(isHeadless ? { clusterIP: "None" } : {}),
        ...(address === undefined || isHeadless ? {} : { [addressFieldOf(serviceType)]: address }),
        selector,
        ports: ports.map((port) => ({ name: `port-${port}`, port, targetPort: port, protocol: "TCP" })),
      },
    },
    {
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      metadata: common,
      spec: { maxUnavailable: 1, selector: { matchLabels: selector } },
    },
    ...(parameters.autoscaling ? [autoscaler(common, parameters.autoscaling)] : []),
  ];
}

function secretsAnnotation(config: DataPlaneConfig | undefined, key: string): Record<string, string> {
  if (config === undefined || config.secrets.length === 0) return {};
  const digest = createHmac("sha256", key).update(JSON.stringify(config.secretValues)).digest("hex");
  return { [SECRETS_ANNOTATION]: digest };
}

/** The text of a configuration file in which variables with the values of the mounted Secrets replace references. */
function configText(config: DataPlaneConfig): string {
  const settings = replaceSecrets(config, (index, isFile) =>
    isFile ? `${CONFIG_SECRETS_FOLDER}/${index}` : `${MARK}${index}${MARK}`,
  );
  const { logging, history } = settings;
  const complete = {
    ...DATA_PLANE_CONFIG,
    ...settings,
    logging: { ...DATA_PLANE_CONFIG.logging, ...fieldsOf(logging) },
    ...(history === undefined ? {} : { history: { ...fieldsOf(history), folder: `${STATE_FOLDER}/history` } }),
  };
  // Kubernetes and the loader replace variables in the text. Only the marks become variables, so other `$` are escaped.
  return JSON.stringify({ config: complete })
    .replaceAll("$", "\\u0024")
    .replace(MARKS, (_, index: string) => `\${${SECRET_VARIABLE}${index}}`);
}

const MARK = "\uf8ff";
const MARKS = /\uf8ff(\d+)\uf8ff/g;

/** Each file of the volume is named by the index of its value in `secrets`. */
function secretSources({ secrets }: DataPlaneConfig): object[] {
  const names = new Set(secrets.map(({ name }) => name));
  return [...names].map((name) => {
    const items = secrets.flatMap((one, index) => (one.name === name ? [{ key: one.key, path: String(index) }] : []));
    return { secret: { name, items } };
  });
}

function addressFieldOf(serviceType: DeployOptions["serviceType"]): "loadBalancerIP" | "clusterIP" {
  return serviceType === "LoadBalancer" ? "loadBalancerIP" : "clusterIP";
}

function autoscaler(
  metadata: KubernetesObject["metadata"],
  {
    minReplicas = 1,
    maxReplicas,
    targetCpuUtilization,
    targetMemoryUtilization,
  }: NonNullable<GatewayParameters["autoscaling"]>,
): KubernetesObject {
  const cpu = targetCpuUtilization ?? (targetMemoryUtilization === undefined ? DEFAULT_CPU_UTILIZATION : undefined);
  const metric = (name: string, averageUtilization: number | undefined) =>
    averageUtilization === undefined
      ? []
      : [{ type: "Resource", resource: { name, target: { type: "Utilization", averageUtilization } } }];
  return {
    apiVersion: AUTOSCALERS.apiVersion,
    kind: AUTOSCALER_KIND,
    metadata,
    spec: {
      scaleTargetRef: { apiVersion: "apps/v1", kind: "Deployment", name: metadata.name },
      minReplicas,
      maxReplicas,
      metrics: [...metric("cpu", cpu), ...metric("memory", targetMemoryUtilization)],
    },
  };
}

function servedPorts(ports: readonly unknown[]): number[] {
  const isServed = (port: unknown): port is number => typeof port === "number" && !DATA_PLANE_PORTS.includes(port);
  return [...new Set(ports.filter(isServed))].sort((a, b) => a - b);
}

function podSpec(
  account: string,
  gateway: string,
  selector: Readonly<Record<string, string>>,
  ports: readonly number[],
  { image, controllerUrl, certificate, backendNetworks }: DeployOptions,
  { nodeSelector, tolerations, priorityClassName, resources, config }: GatewayParameters,
): Record<string, unknown> {
  const hasSecrets = config !== undefined && config.secrets.length > 0;
  const probe = (path: string) => ({ httpGet: { path, port: STATS_PORT } });
  return {
    serviceAccountName: account,
    automountServiceAccountToken: false,
    terminationGracePeriodSeconds: Math.ceil((config?.drainMs ?? DEFAULT_DRAIN_MS) / 1000) + GRACE_SECONDS,
    ...defined({ nodeSelector, tolerations, priorityClassName }),
    securityContext: {
      runAsNonRoot: true,
      runAsUser: 65532,
      seccompProfile: { type: "RuntimeDefault" },
      // Listeners use the ports of the Gateway, including ports below 1024.
      sysctls: [{ name: "net.ipv4.ip_unprivileged_port_start", value: "0" }],
    },
    topologySpreadConstraints: ["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map((topologyKey) => ({
      maxSkew: 1,
      topologyKey,
      whenUnsatisfiable: "ScheduleAnyway",
      labelSelector: { matchLabels: selector },
    })),
    containers: [
      {
        name: "gateway",
        image,
        args: [
          "--from",
          controllerUrl,
          "--gateway",
          gateway,
          "--token-file",
          `${TOKEN_FOLDER}/token`,
          "--state-folder",
          STATE_FOLDER,
        ],
        env: [
          { name: "GATEWAY_CONTROLLER_CA", value: certificate },
          { name: "GATEWAY_BACKEND_NETWORKS", value: backendNetworks },
          { name: "GATEWAY_INSTANCE", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
          ...(config ? [{ name: "GATEWAY_CONFIG", value: configText(config) }] : []),
          ...(hasSecrets ? [{ name: "GATEWAY_CONFIG_SECRETS", value: CONFIG_SECRETS_FOLDER }] : []),
        ],
        ports: [
          ...ports.map((port) => ({ name: `port-${port}`, containerPort: port })),
          { name: "stats", containerPort: STATS_PORT },
        ],
        readinessProbe: { ...probe("/healthz/ready"), periodSeconds: 5 },
        livenessProbe: { ...probe("/healthz/live"), periodSeconds: 10, failureThreshold: 6 },
        // No port is open before the first snapshot arrives, so the startup probe allows time for it.
        startupProbe: { ...probe("/healthz/live"), periodSeconds: 2, failureThreshold: 150 },
        lifecycle: { preStop: { sleep: { seconds: PRE_STOP_SECONDS } } },
        resources: { ...DEFAULT_RESOURCES, ...resources },
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        },
        volumeMounts: [
          { name: "token", mountPath: TOKEN_FOLDER, readOnly: true },
          { name: "state", mountPath: STATE_FOLDER },
          { name: "tmp", mountPath: "/tmp" },
          ...(hasSecrets ? [{ name: "config", mountPath: CONFIG_SECRETS_FOLDER, readOnly: true }] : []),
        ],
      },
    ],
    volumes: [
      {
        name: "token",
        projected: {
          sources: [{ serviceAccountToken: { audience: TOKEN_AUDIENCE, expirationSeconds: 3600, path: "token" } }],
        },
      },
      { name: "state", emptyDir: { sizeLimit: `${Math.ceil((STATE_BYTES + (config?.spoolBytes ?? 0)) / MIB)}Mi` } },
      { name: "tmp", emptyDir: { sizeLimit: "64Mi" } },
      ...(hasSecrets ? [{ name: "config", projected: { sources: secretSources(config) } }] : []),
    ],
  };
}

/** A retry alone does not fix requests that the API server rejects with these statuses. */
const REFUSALS = new Set([400, 403, 409, 422]);

const PATHS: Readonly<Record<string, string>> = {
  ServiceAccount: "/api/v1/namespaces/NS/serviceaccounts",
  Service: "/api/v1/namespaces/NS/services",
  Deployment: "/apis/apps/v1/namespaces/NS/deployments",
  PodDisruptionBudget: "/apis/policy/v1/namespaces/NS/poddisruptionbudgets",
  [AUTOSCALER_KIND]: "/apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers",
};

export interface DeployResult {
  /** True if not everything was applied, so that a retry is needed. */
  readonly isIncomplete: boolean;
  readonly refused: Verdict | undefined;
}

/** Returns the condition for a Service with this name that belongs to another owner, which must not be replaced. */
export function nameConflict(gateway: KubernetesObject, services: readonly KubernetesObject[]): Verdict | undefined {
  const { namespace, uid } = gateway.metadata;
  const name = deployedName(gateway);
  const service = services.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  if (service === undefined || ownerOf(service).uid === uid) return undefined;
  const message = `Service ${objectKey(service)} exists and does not belong to this Gateway: rename one of them`;
  return { isTrue: false, reason: "Invalid", message };
}

/** Returns the condition for addresses that the Service of the Gateway cannot have, so that it must not be applied. */
export function addressConflict(
  gateway: KubernetesObject,
  options: Pick<DeployOptions, "serviceType">,
  parameters: GatewayParameters,
): Verdict | undefined {
  const requested = requestedAddresses(specOf(gateway));
  const { serviceType = options.serviceType } = parameters;
  const [address] = requested;
  if (address === undefined) return undefined;
  if (serviceType === "None") return notUsable("spec.addresses: a headless Service cannot request an address");
  if (requested.length > 1) return notUsable("spec.addresses: the Service of the Gateway can request only one address");
  return isIP(address) === 0 ? notUsable(`spec.addresses: ${address} is not an IP address`) : undefined;
}

function ownerOf({ metadata }: KubernetesObject): { readonly name: unknown; readonly uid: unknown } {
  const owners = listOf((metadata as { readonly ownerReferences?: unknown }).ownerReferences).map(fieldsOf);
  const { name, uid } = owners.find(({ kind }) => kind === "Gateway") ?? {};
  return { name, uid };
}

/**
 * Returns the Deployments to delete, which belong to Gateways that moved to another class. If the new class also belongs
 * to this controller, the old data planes keep serving until the new ones are available. The API server deletes the
 * Deployments of deleted Gateways.
 */
export function staleDeployments(
  deployments: readonly KubernetesObject[],
  gateways: readonly KubernetesObject[],
  isOurs: (gateway: KubernetesObject) => boolean,
): KubernetesObject[] {
  const find = (namespace: string | undefined, name: string): KubernetesObject | undefined =>
    deployments.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  return deployments.filter((deployment) => {
    const { namespace, name } = deployment.metadata;
    const owner = ownerOf(deployment);
    const gateway = gateways.find(
      ({ metadata }) => metadata.namespace === namespace && metadata.name === owner.name && metadata.uid === owner.uid,
    );
    if (gateway === undefined) return false;
    if (!isOurs(gateway)) return true;
    const current = deployedName(gateway);
    return current !== name && Number(fieldsOf(find(namespace, current)?.status).availableReplicas ?? 0) > 0;
  });
}

/** A request for an address that is taken, or is outside the range of the cluster, is invalid. */
function refusalReason({ kind, spec }: KubernetesObject, status: number): string {
  if (status === 403) return "NoResources";
  const { clusterIP = "None" } = fieldsOf(spec);
  return kind === "Service" && status === 422 && clusterIP !== "None" ? "AddressNotUsable" : "Invalid";
}

export interface Deployer {
  /** `exists` returns undefined for a kind that is not watched. */
  apply(
    manifests: readonly KubernetesObject[],
    exists: (kind: string, key: string) => boolean | undefined,
  ): Promise<DeployResult>;
  /** Resolves with true if the data plane of the Deployment was not completely deleted, so that a retry is needed. */
  remove(deployment: KubernetesObject): Promise<boolean>;
  /** Resolves with true if the autoscaler was not deleted, so that a retry is needed. */
  removeAutoscaler(autoscaler: KubernetesObject): Promise<boolean>;
}

/** `mayWrite` is checked before each write, because leadership can end between two writes. */
export function createDeployer(client: ApiClient, logger: Logger, mayWrite: () => boolean): Deployer {
  const applied = new Map<string, string>();

  async function applyOne(manifest: KubernetesObject): Promise<Verdict | boolean> {
    const { name, namespace = "" } = manifest.metadata;
    const collection = PATHS[manifest.kind]?.replace("NS", encodeURIComponent(namespace));
    const path = `${collection}/${encodeURIComponent(name)}?fieldManager=${MANAGED_BY}&force=true`;
    try {
      const type = "application/apply-patch+yaml";
      await client.request({ method: "PATCH", path, type, body: manifest, timeoutMs: WRITE_TIMEOUT_MS });
      return true;
    } catch (error) {
      // A namespace that is being deleted accepts no new objects.
      const isTerminating =
        error instanceof ApiError && (error.status === 404 || /being terminated/.test(error.message));
      if (!isTerminating)
        logger.warn("data plane deployment failed", {
          object: `${manifest.kind} ${objectKey(manifest)}`,
          reason: (error as Error).message,
        });
      if (!isTerminating && error instanceof ApiError && REFUSALS.has(error.status))
        return {
          isTrue: false,
          reason: refusalReason(manifest, error.status),
          message: `${manifest.kind} ${objectKey(manifest)} cannot be deployed: ${error.message}`,
        };
      return false;
    }
  }

  /** Returns whether the object no longer exists. */
  async function deleteOne(kind: string, { metadata: { name, namespace = "" } }: KubernetesObject): Promise<boolean> {
    const key = `${kind} ${keyOf(namespace, name)}`;
    const path = `${PATHS[kind]?.replace("NS", encodeURIComponent(namespace))}/${encodeURIComponent(name)}`;
    try {
      await client.request({ method: "DELETE", path, timeoutMs: WRITE_TIMEOUT_MS });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return true;
      logger.warn("old data plane could not be deleted", { object: key, reason: (error as Error).message });
      return false;
    } finally {
      applied.delete(key);
    }
    return true;
  }

  return {
    async apply(manifests, exists) {
      let isIncomplete = false;
      let refused: Verdict | undefined;
      for (const manifest of manifests) {
        if (!mayWrite()) return { isIncomplete: true, refused };
        const key = `${manifest.kind} ${objectKey(manifest)}`;
        const hash = createHash("sha256").update(JSON.stringify(manifest)).digest("base64");
        if (applied.get(key) === hash && exists(manifest.kind, objectKey(manifest)) !== false) continue;
        const outcome = await applyOne(manifest);
        if (outcome === true) {
          applied.set(key, hash);
          continue;
        }
        isIncomplete = true;
        if (outcome !== false) refused ??= outcome;
      }
      return { isIncomplete, refused };
    },
    async remove(deployment) {
      // The Deployment is deleted last, because a data plane to remove is found by its Deployment.
      for (const kind of ["PodDisruptionBudget", "Service", "ServiceAccount", "Deployment"])
        if (!mayWrite() || !(await deleteOne(kind, deployment))) return true;
      logger.info("deleted the data plane of a Gateway that changed its class", { deployment: objectKey(deployment) });
      return false;
    },
    async removeAutoscaler(autoscaler) {
      if (!mayWrite() || !(await deleteOne(AUTOSCALER_KIND, autoscaler))) return true;
      logger.info("deleted an autoscaler that is no longer configured", { autoscaler: objectKey(autoscaler) });
      return false;
    },
  };
}
