import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { fakeApi } from "../../test/support/kubernetes/fake-api.ts";
import { isKubernetesObject, type KubernetesObject } from "../config/documents/cluster.ts";
import { silentLogger } from "../record/log/logger.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { createStatusWriter, desiredStatuses, type GatewayState } from "./status.ts";

const PATH = "/apis/policy.gateway.internal/v1alpha1/backends";
const CLUSTER = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: gateway }
spec: { controllerName: policy.gateway.internal/gateway }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: shop }
spec: { gatewayClassName: gateway, listeners: [{ name: http, port: 80, protocol: HTTP }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: models, namespace: shop }
spec:
  parentRefs: [{ name: edge }]
  rules: [{ backendRefs: [{ group: policy.gateway.internal, kind: Backend, name: models }] }]
---
apiVersion: policy.gateway.internal/v1alpha1
kind: Backend
metadata: { name: models, namespace: shop, generation: 4 }
spec: { ai: { provider: { openAI: {} }, auth: { key: { secretRef: { name: keys, key: key } } } } }
---
apiVersion: policy.gateway.internal/v1alpha1
kind: Backend
metadata: { name: unused, namespace: shop }
spec: { host: 'unix:/run/docker.sock' }
---
apiVersion: v1
kind: Secret
metadata: { name: keys, namespace: shop }
data: { key: c2VzYW1l }
---
apiVersion: v1
kind: Secret
metadata: { name: others, namespace: shop }
data: { key: c2VzYW1l }
`;
const STATE: GatewayState = {
  programmed: { isTrue: true, reason: "Programmed", message: "Served" },
  addresses: [],
  refused: new Map(),
};

function objects(): KubernetesObject[] {
  return parseAllDocuments(CLUSTER)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
}

const ofBackends = (all: readonly KubernetesObject[], nowMs: number) =>
  desiredStatuses(createClusterView(all, nowMs), () => STATE, nowMs).filter(({ object }) => object.kind === "Backend");

test("a data plane gets the Backend that its route names and the Secret that this names, and no other", () => {
  const documents = createClusterView(objects(), 0).snapshots.get("shop/edge")?.documents ?? [];
  assert.deepEqual(
    documents.map(({ kind, metadata }) => `${kind} ${metadata.name}`),
    ["Gateway edge", "HTTPRoute models", "Backend models", "Secret keys"],
  );
});

test("the status of a Backend is written once, with the reason of one that is not valid", async () => {
  const api = fakeApi();
  for (const object of objects()) if (object.kind === "Backend") api.put(PATH, { ...object });
  const current = (): KubernetesObject[] => [
    ...objects().filter(({ kind }) => kind !== "Backend"),
    ...["models", "unused"].map((name) => api.get(PATH, "shop", name) as KubernetesObject),
  ];
  const writer = createStatusWriter(api, silentLogger, () => true);
  await writer.write(ofBackends(current(), 0));
  assert.equal(writer.written(), 2);
  const conditions = current()
    .filter(({ kind }) => kind === "Backend")
    .map(({ status }) => (status as { conditions: Record<string, unknown>[] }).conditions[0]);
  assert.deepEqual(
    conditions.map((condition) => [
      condition?.type,
      condition?.status,
      condition?.reason,
      condition?.observedGeneration,
    ]),
    [
      ["Accepted", "True", "Accepted", 4],
      ["Accepted", "False", "Invalid", 0],
    ],
  );
  assert.match(String(conditions[1]?.message), /spec\.host: a document of a cluster cannot use a unix socket/);
  assert.ok(!JSON.stringify(conditions).includes("sesame"));
  assert.deepEqual(ofBackends(current(), 60_000), [], "nothing more to write");
});

test("a cluster without a class of ours keeps its Backends as they are", () => {
  const all = objects().filter(({ kind }) => kind !== "GatewayClass");
  assert.deepEqual(ofBackends(all, 0), []);
});
