import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { fakeApi } from "../../test/support/kubernetes/fake-api.ts";
import { isKubernetesObject, type KubernetesObject, objectKey } from "../config/documents/cluster.ts";
import { silentLogger } from "../record/log/logger.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { createStatusWriter, type DesiredStatus, desiredStatuses, type GatewayState } from "./status.ts";

const CLUSTER = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: gateway }
spec: { controllerName: policy.gateway.internal/gateway }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: infra, generation: 2 }
spec: { gatewayClassName: gateway, listeners: [{ name: http, port: 80, protocol: HTTP, allowedRoutes: { namespaces: { from: All } } }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: foreign, namespace: infra }
spec: { gatewayClassName: other, listeners: [{ name: http, port: 80, protocol: HTTP }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: web, namespace: shop, generation: 3 }
spec:
  parentRefs: [{ name: edge, namespace: infra }, { name: foreign, namespace: infra }]
  rules: [{ backendRefs: [{ name: web, port: 8080 }] }]
status:
  parents: [{ parentRef: { name: foreign, namespace: infra }, controllerName: other/controller, conditions: [] }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: theirs, namespace: shop }
spec: { parentRefs: [{ name: foreign, namespace: infra }], rules: [] }
---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: keys, namespace: shop, generation: 1 }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web }]
  traffic: { backendAuth: { key: { secretRef: { name: keys, key: key } } } }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ port: 8080 }] }
---
apiVersion: v1
kind: Secret
metadata: { name: keys, namespace: shop }
data: { key: c2VzYW1l }
---
apiVersion: v1
kind: Secret
metadata: { name: others, namespace: infra }
data: { key: bm90IHlvdXJz }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }
addressType: IPv4
endpoints: [{ addresses: [10.0.0.2], conditions: { ready: true } }, { addresses: [10.0.0.3], conditions: { ready: false } }]
ports: [{ port: 9090 }]
`;

const STATE: GatewayState = {
  programmed: { isTrue: true, reason: "Programmed", message: "Served" },
  addresses: [{ type: "IPAddress", value: "10.0.0.1" }],
  refused: new Map(),
};

function objects(): KubernetesObject[] {
  return parseAllDocuments(CLUSTER)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
}

/** The objects after the statuses were written. */
function written(all: readonly KubernetesObject[], statuses: readonly DesiredStatus[]): KubernetesObject[] {
  return all.map((object) => {
    const found = statuses.find(
      (one) => one.object.kind === object.kind && objectKey(one.object) === objectKey(object),
    );
    return found ? { ...object, status: { ...(object.status as object), ...found.status } } : object;
  });
}

test("every kind of ours gets a status once, and what is others' stays", () => {
  const all = objects();
  const first = desiredStatuses(createClusterView(all, 0), () => STATE, 0);
  assert.deepEqual(
    first.map(({ object }) => `${object.kind} ${objectKey(object)}`),
    ["GatewayClass /gateway", "Gateway infra/edge", "HTTPRoute shop/web", "GatewayPolicy shop/keys"],
  );
  const route = first[2]?.status as { parents: { controllerName: string; conditions: { status: string }[] }[] };
  assert.deepEqual(
    route.parents.map(({ controllerName }) => controllerName),
    ["other/controller", "policy.gateway.internal/gateway"],
  );
  assert.deepEqual(
    route.parents[1]?.conditions.map(({ status }) => status),
    ["True", "True"],
  );
  const later = desiredStatuses(createClusterView(written(all, first), 60_000), () => STATE, 60_000);
  assert.deepEqual(later, [], "an hour later there is nothing to write");
});

test("a Gateway has the condition ResolvedRefs while it names a client certificate", () => {
  const conditionsAfter = (all: readonly KubernetesObject[], spec: object) => {
    const changed = all.map((one) =>
      objectKey(one) === "infra/edge" ? { ...one, spec: { ...(one.spec as object), ...spec } } : one,
    );
    const next = written(
      changed,
      desiredStatuses(createClusterView(changed, 0), () => STATE, 0),
    );
    const status = next.find((one) => objectKey(one) === "infra/edge")?.status as
      | { conditions: { type: string; reason: string }[] }
      | undefined;
    return { next, found: status?.conditions.map(({ type, reason }) => `${type} ${reason}`) };
  };
  const named = conditionsAfter(objects(), { tls: { backend: { clientCertificateRef: { name: "gone" } } } });
  assert.deepEqual(named.found, [
    "Accepted Accepted",
    "ResolvedRefs InvalidClientCertificateRef",
    "Programmed Programmed",
  ]);
  assert.deepEqual(conditionsAfter(named.next, { tls: {} }).found, ["Accepted Accepted", "Programmed Programmed"]);
});

test("what a data plane could not compile is the policy's status, and a time changes only with its status", () => {
  const all = written(
    objects(),
    desiredStatuses(createClusterView(objects(), 0), () => STATE, 0),
  );
  const state = { ...STATE, refused: new Map([["shop/keys", "the key is empty"]]) };
  const next = desiredStatuses(createClusterView(all, 5_000), () => state, 5_000);
  assert.deepEqual(
    next.map(({ object }) => object.kind),
    ["GatewayPolicy"],
  );
  assert.match(
    JSON.stringify(next[0]?.status),
    /"status":"False","reason":"Invalid","message":"the key is empty".*1970-01-01T00:00:05Z/,
  );
});

test("a Gateway that rejects a policy comes first in the policy's status", () => {
  const all = objects().flatMap((object) => {
    if (object.kind === "Gateway" && object.metadata.name === "edge")
      return [object, { ...object, metadata: { ...object.metadata, name: "west" } }];
    if (object.kind !== "HTTPRoute" || object.metadata.name !== "web") return [object];
    const parentRefs = ["edge", "west"].map((name) => ({ name, namespace: "infra" }));
    return [{ ...object, spec: { ...(object.spec as object), parentRefs } }];
  });
  const refused = { ...STATE, refused: new Map([["shop/keys", "the key is empty"]]) };
  const statuses = desiredStatuses(
    createClusterView(all, 0),
    (gateway) => (gateway === "infra/west" ? refused : STATE),
    0,
  );
  const policy = statuses.find(({ object }) => object.kind === "GatewayPolicy")?.status as
    | { ancestors: { ancestorRef: { name: string }; conditions: { status: string }[] }[] }
    | undefined;
  assert.deepEqual(
    policy?.ancestors.map(({ ancestorRef, conditions }) => [ancestorRef.name, conditions[0]?.status]),
    [
      ["west", "False"],
      ["edge", "True"],
    ],
  );
});

test("a snapshot has what its Gateway may use, and nothing else", () => {
  const { snapshots } = createClusterView(objects(), 0);
  assert.deepEqual([...snapshots.keys()], ["infra/edge"]);
  const snapshot = snapshots.get("infra/edge");
  assert.deepEqual(
    snapshot?.documents.map(({ kind, metadata }) => `${kind} ${metadata.namespace ?? ""}/${metadata.name}`),
    ["Gateway infra/edge", "HTTPRoute shop/web", "GatewayPolicy shop/keys", "Secret shop/keys", "Service shop/web"],
  );
  assert.deepEqual(snapshot?.endpoints, { "shop/web:8080": ["10.0.0.2:9090"] });
});

test("a written status is no new version, a changed endpoint neither; a changed route is one", () => {
  const all = objects();
  const version = (list: readonly KubernetesObject[]): string | undefined =>
    createClusterView(list, 0).snapshots.get("infra/edge")?.version;
  const before = version(all);
  assert.equal(
    version(
      written(
        all,
        desiredStatuses(createClusterView(all, 0), () => STATE, 0),
      ),
    ),
    before,
  );
  assert.equal(version(all.filter(({ kind }) => kind !== "EndpointSlice")), before);
  assert.notEqual(version(all.filter(({ metadata }) => metadata.name !== "keys")), before);
});

test("a conflict is no error: the next look decides; the same is not written twice", async () => {
  const api = fakeApi();
  const path = "/apis/gateway.networking.k8s.io/v1/gateways";
  api.put(path, { kind: "Gateway", metadata: { name: "edge", namespace: "infra" } });
  const current = api.get(path, "infra", "edge") as KubernetesObject;
  const writer = createStatusWriter(api, silentLogger, () => true);
  const status = { addresses: [] };
  assert.equal(
    await writer.write([{ object: { ...current, metadata: { ...current.metadata, resourceVersion: "1" } }, status }]),
    false,
  );
  assert.equal(writer.written(), 0);
  await writer.write([{ object: current, status }]);
  await writer.write([{ object: current, status }]);
  assert.equal(writer.written(), 1);
  api.failWith(new Error("away"));
  assert.equal(await writer.write([{ object: current, status: { addresses: [1] } }]), true);
});
