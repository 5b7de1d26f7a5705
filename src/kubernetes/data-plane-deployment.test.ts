import assert from "node:assert/strict";
import { test } from "node:test";
import { type KubernetesObject, specOf } from "../config/documents/cluster.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { silentLogger } from "../record/log/logger.ts";
import { type ApiClient, ApiError, type ApiRequest } from "./api-client.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import {
  addressConflict,
  createDeployer,
  dataPlaneManifests,
  nameConflict,
  staleDeployments,
} from "./data-plane-deployment.ts";

const OPTIONS = {
  image: "image",
  replicas: 1,
  serviceType: "ClusterIP",
  backendNetworks: "",
  controllerUrl: "https://controller",
  certificate: "",
  digestKey: "",
} as const;

function gateway(className: string, ports: readonly number[] = [80]): KubernetesObject {
  return {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "Gateway",
    metadata: { name: "edge", namespace: "infra", uid: "uid-1" },
    spec: {
      gatewayClassName: className,
      listeners: ports.map((port) => ({ name: `port-${port}`, port, protocol: "HTTP" })),
    },
  };
}

function owned(kind: string, name: string, uid: string, more: object = {}): KubernetesObject {
  const metadata = { name, namespace: "infra", ownerReferences: [{ kind: "Gateway", name: "edge", uid }] };
  return { apiVersion: "v1", kind, metadata, ...more };
}

/** An API server that responds to each request with this status. */
function recordingClient(statusOf: (request: ApiRequest) => number): ApiClient & { readonly seen: string[] } {
  const seen: string[] = [];
  return {
    seen,
    async request(request) {
      seen.push(`${request.method} ${request.path.split("?")[0]}`);
      const status = statusOf(request);
      if (status >= 300) throw new ApiError(status, "", `refused with ${status}`);
      return {};
    },
    watch: () => () => undefined,
    close: () => undefined,
  };
}

for (const [status, reason] of [
  [403, "NoResources"],
  [422, "Invalid"],
  [409, "Invalid"],
  [500, undefined],
] as const)
  test(`a manifest that the API server refuses with ${status} is reported as ${reason ?? "nothing, and retried"}`, async () => {
    const client = recordingClient(({ path }) => (path.includes("/deployments/") ? status : 200));
    const deployer = createDeployer(client, silentLogger, () => true);
    const { isIncomplete, refused } = await deployer.apply(
      dataPlaneManifests(gateway("one"), OPTIONS),
      () => undefined,
    );
    assert.deepEqual([isIncomplete, refused?.reason], [true, reason]);
    if (refused) assert.equal(refused.message, `Deployment infra/edge-one cannot be deployed: refused with ${status}`);
  });

test("a pod accepts connections while its Service still lists it, and has time to drain", () => {
  const [pod] = dataPlaneManifests(gateway("one"), OPTIONS).flatMap(({ kind, spec }) =>
    kind === "Deployment" ? [fieldsOf(fieldsOf(fieldsOf(spec).template).spec)] : [],
  );
  const [container] = listOf(pod?.containers).map(fieldsOf);
  assert.deepEqual(container?.lifecycle, { preStop: { sleep: { seconds: 5 } } });
  const drainSeconds = 30;
  assert.ok(Number(pod?.terminationGracePeriodSeconds) > 5 + drainSeconds);
});

test("a replica that lost the lead neither applies nor deletes", async () => {
  const client = recordingClient(() => 200);
  const deployer = createDeployer(client, silentLogger, () => false);
  await deployer.apply(dataPlaneManifests(gateway("one"), OPTIONS), () => undefined);
  await deployer.remove(owned("Deployment", "edge-one", "uid-1"));
  assert.deepEqual(client.seen, []);
});

test("a Service of another owner is not replaced", () => {
  const conflict = nameConflict(gateway("one"), [owned("Service", "edge-one", "uid-2")]);
  assert.equal(conflict?.reason, "Invalid");
  assert.match(conflict?.message ?? "", /Service infra\/edge-one exists/);
  assert.equal(nameConflict(gateway("one"), [owned("Service", "edge-one", "uid-1")]), undefined);
  assert.equal(nameConflict(gateway("one"), [owned("Service", "edge-two", "uid-2")]), undefined);
});

const requesting = (...addresses: object[]): KubernetesObject => {
  const one = gateway("one");
  return { ...one, spec: { ...specOf(one), addresses } };
};
const address = { type: "IPAddress", value: "203.0.113.9" };

for (const [serviceType, field] of [
  ["LoadBalancer", "loadBalancerIP"],
  ["ClusterIP", "clusterIP"],
  ["NodePort", "clusterIP"],
] as const)
  test(`a Service of type ${serviceType} requests the address of its Gateway`, () => {
    const options = { ...OPTIONS, serviceType };
    const fieldIn = (from: KubernetesObject): unknown =>
      dataPlaneManifests(from, options).flatMap((one) => (one.kind === "Service" ? [specOf(one)[field]] : []));
    assert.deepEqual(fieldIn(requesting(address)), [address.value]);
    assert.deepEqual(fieldIn(requesting({ type: "IPAddress" })), [undefined]);
    assert.equal(addressConflict(requesting(address), options, {}), undefined);
  });

test("a Service is not applied if it cannot request the addresses", () => {
  const conflict = (from: KubernetesObject, serviceType: "ClusterIP" | "None"): unknown =>
    addressConflict(from, OPTIONS, { serviceType })?.reason;
  assert.equal(conflict(requesting(address), "None"), "AddressNotUsable");
  assert.equal(conflict(requesting({ value: "203.0.113" }), "ClusterIP"), "AddressNotUsable");
  assert.equal(conflict(requesting(address, { value: "203.0.113.10" }), "ClusterIP"), "AddressNotUsable");
  assert.equal(conflict(requesting(address, { type: "IPAddress" }), "ClusterIP"), undefined);
  assert.equal(conflict(requesting({ type: "IPAddress" }), "None"), undefined);
});

test("an address that the API server refuses is not usable", async () => {
  const client = recordingClient(({ path }) => (path.includes("/services/") ? 422 : 200));
  const refusalOf = async (from: KubernetesObject): Promise<unknown> => {
    const deployer = createDeployer(client, silentLogger, () => true);
    return (await deployer.apply(dataPlaneManifests(from, OPTIONS), () => undefined)).refused?.reason;
  };
  assert.equal(await refusalOf(requesting(address)), "AddressNotUsable");
  assert.equal(await refusalOf(requesting()), "Invalid");
});

test("the old data plane of a Gateway goes when its class changed and the new one is available", () => {
  const old = owned("Deployment", "edge-one", "uid-1");
  const started = owned("Deployment", "edge-two", "uid-1");
  const available = owned("Deployment", "edge-two", "uid-1", { status: { availableReplicas: 1 } });
  const foreign = owned("Deployment", "edge-one", "uid-2");
  const stale = (deployments: readonly KubernetesObject[], isOurs = true): string[] =>
    staleDeployments(deployments, [gateway("two")], () => isOurs).map(({ metadata }) => metadata.name);
  assert.deepEqual(stale([old, started]), []);
  assert.deepEqual(stale([old, available]), ["edge-one"]);
  assert.deepEqual(stale([foreign, available]), []);
  assert.deepEqual(stale([available]), []);
  assert.deepEqual(stale([old, available], false), ["edge-one", "edge-two"], "the class of another controller");
});

test("everything of an old data plane is deleted, its Deployment last", async () => {
  const client = recordingClient(({ path }) => (path.includes("/services/") ? 404 : 200));
  const deployer = createDeployer(client, silentLogger, () => true);
  assert.equal(await deployer.remove(owned("Deployment", "edge-one", "uid-1")), false);
  assert.deepEqual(client.seen, [
    "DELETE /apis/policy/v1/namespaces/infra/poddisruptionbudgets/edge-one",
    "DELETE /api/v1/namespaces/infra/services/edge-one",
    "DELETE /api/v1/namespaces/infra/serviceaccounts/edge-one",
    "DELETE /apis/apps/v1/namespaces/infra/deployments/edge-one",
  ]);
});

test("an autoscaler is applied, and deleted when it is no longer configured", async () => {
  const client = recordingClient(({ path }) => (path.includes("/gone") ? 404 : 200));
  const deployer = createDeployer(client, silentLogger, () => true);
  const path = "/apis/autoscaling/v2/namespaces/infra/horizontalpodautoscalers";
  const manifests = dataPlaneManifests(gateway("one"), OPTIONS, { autoscaling: { maxReplicas: 3 } });
  await deployer.apply(manifests, () => true);
  assert.ok(client.seen.includes(`PATCH ${path}/edge-one`));
  assert.equal(await deployer.removeAutoscaler(owned("HorizontalPodAutoscaler", "edge-one", "uid-1")), false);
  assert.equal(client.seen.at(-1), `DELETE ${path}/edge-one`);
  assert.equal(await deployer.removeAutoscaler(owned("HorizontalPodAutoscaler", "gone", "uid-1")), false);
  await deployer.apply(manifests, () => true);
  assert.equal(client.seen.at(-1), `PATCH ${path}/edge-one`, "it is applied again after its deletion");
});

test("a listener on a port of the data plane itself is refused, and the others are deployed", () => {
  const edge = gateway("one", [80, 15_000, 15_020]);
  const accepted = createClusterView(
    [
      {
        apiVersion: "gateway.networking.k8s.io/v1",
        kind: "GatewayClass",
        metadata: { name: "one" },
        spec: { controllerName: "policy.gateway.internal/gateway" },
      },
      edge,
    ],
    0,
  ).result.gatewayOutcomes[0]?.listeners.map((listener) => listener.accepted.reason);
  assert.deepEqual(accepted, ["Accepted", "PortUnavailable", "PortUnavailable"]);
  const services = dataPlaneManifests(edge, OPTIONS).filter(({ kind }) => kind === "Service");
  const ports = services.flatMap((service) => listOf(specOf(service).ports).map((port) => fieldsOf(port).port));
  assert.deepEqual(ports, [80]);
});
