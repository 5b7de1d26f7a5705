/** GatewayParameters: which references are accepted, and what each field changes in the deployed data plane. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createClusterView } from "../../kubernetes/cluster-snapshots.ts";
import { dataPlaneManifests } from "../../kubernetes/data-plane-deployment.ts";
import { desiredStatuses } from "../../kubernetes/status.ts";
import { fieldsOf, listOf } from "../text/value-shapes.ts";
import { createCluster, type KubernetesObject, specOf } from "./cluster.ts";
import { type GatewayParameters, parametersOf, parametersSchema } from "./gateway-parameters.ts";

const REFERENCE = { group: "policy.gateway.internal", kind: "GatewayParameters", name: "large" };

function object(kind: string, key: string, spec: object, group = "gateway.networking.k8s.io/v1"): KubernetesObject {
  const [name = "", namespace] = key.split("/").reverse();
  return { apiVersion: group, kind, metadata: { name, ...(namespace === undefined ? {} : { namespace }) }, spec };
}

const parameters = (key: string, spec: object) =>
  object("GatewayParameters", key, spec, "policy.gateway.internal/v1alpha1");
const gatewayClass = (parametersRef?: object) =>
  object("GatewayClass", "gateway", {
    controllerName: "policy.gateway.internal/gateway",
    ...(parametersRef === undefined ? {} : { parametersRef }),
  });
const gateway = (parametersRef?: object) =>
  object("Gateway", "infra/edge", {
    gatewayClassName: "gateway",
    listeners: [{ name: "http", port: 80, protocol: "HTTP" }],
    ...(parametersRef === undefined ? {} : { infrastructure: { parametersRef } }),
  });

function acceptance(objects: readonly KubernetesObject[]): Record<string, string> {
  const state = { programmed: { isTrue: true, reason: "Programmed", message: "" }, addresses: [], refused: new Map() };
  const statuses = desiredStatuses(createClusterView(objects, 0), () => state, 0).map(
    ({ object: { kind }, status }) => {
      const accepted = listOf(status.conditions)
        .map(fieldsOf)
        .find(({ type }) => type === "Accepted");
      return [kind, `${String(accepted?.status)} ${String(accepted?.reason)}`];
    },
  );
  return Object.fromEntries(statuses);
}

const KEY_REFERENCE = { secretRef: { name: "shared", key: "session" } };

const references: [name: string, objects: KubernetesObject[], gatewayClass: string, gateway: string][] = [
  ["none", [gatewayClass(), gateway()], "True Accepted", "True Accepted"],
  [
    "of a Gateway",
    [gatewayClass(), gateway(REFERENCE), parameters("infra/large", { replicas: 2 })],
    "True Accepted",
    "True Accepted",
  ],
  [
    "of a class",
    [gatewayClass({ ...REFERENCE, namespace: "infra" }), gateway(), parameters("infra/large", { replicas: 2 })],
    "True Accepted",
    "True Accepted",
  ],
  ["missing", [gatewayClass(), gateway(REFERENCE)], "True Accepted", "False InvalidParameters"],
  [
    "in another namespace",
    [gatewayClass(), gateway(REFERENCE), parameters("other/large", {})],
    "True Accepted",
    "False InvalidParameters",
  ],
  [
    "of another kind",
    [gatewayClass(), gateway({ ...REFERENCE, kind: "ConfigMap", group: "" }), parameters("infra/large", {})],
    "True Accepted",
    "False InvalidParameters",
  ],
  [
    "with an unknown field",
    [gatewayClass(), gateway(REFERENCE), parameters("infra/large", { image: "own" })],
    "True Accepted",
    "False InvalidParameters",
  ],
  [
    "of a class, with a Secret that each Gateway needs",
    [
      gatewayClass({ ...REFERENCE, namespace: "infra" }),
      gateway(),
      parameters("infra/large", {
        config: { store: { redis: { secretRef: { name: "redis", key: "url" } } }, sessionKey: KEY_REFERENCE },
      }),
    ],
    "True Accepted",
    "False InvalidParameters",
  ],
  [
    "of a class, with an invalid setting",
    [
      gatewayClass({ ...REFERENCE, namespace: "infra" }),
      gateway(),
      parameters("infra/large", { config: { sessionKey: KEY_REFERENCE, drainTimeout: "soon" } }),
    ],
    "False InvalidParameters",
    "False InvalidParameters",
  ],
  [
    "of a class, missing",
    [gatewayClass({ ...REFERENCE, namespace: "infra" }), gateway()],
    "False InvalidParameters",
    "False InvalidParameters",
  ],
  [
    "of a class, without a namespace",
    [gatewayClass(REFERENCE), gateway(), parameters("infra/large", {})],
    "False InvalidParameters",
    "False InvalidParameters",
  ],
];
for (const [name, objects, ofClass, ofGateway] of references)
  test(`parameters ${name}: class ${ofClass}, Gateway ${ofGateway}`, () => {
    assert.deepEqual(acceptance(objects), { GatewayClass: ofClass, Gateway: ofGateway });
  });

for (const [name, spec] of [
  ["valid", { replicas: 2 }],
  ["invalid", { replicas: 1, replica: 2 }],
  ["missing", undefined],
] as const)
  test(`the snapshot of a Gateway with ${name} parameters serves it, and does not contain them`, () => {
    const own = spec === undefined ? [] : [parameters("infra/large", spec)];
    const { documents = [] } =
      createClusterView([gatewayClass(), gateway(REFERENCE), ...own], 0).snapshots.get("infra/edge") ?? {};
    assert.deepEqual(
      documents.map(({ kind }) => kind),
      ["Gateway"],
    );
    const { result } = createClusterView([gatewayClass(), ...documents], 0);
    assert.deepEqual(
      result.gateways.map(({ port }) => port),
      [80],
    );
  });

for (const isServed of [true, false])
  test(`a Gateway with invalid parameters that ${isServed ? "is" : "is not"} served says so`, () => {
    const programmed = isServed
      ? { isTrue: true, reason: "Programmed", message: "Served" }
      : { isTrue: false, reason: "Pending", message: "No data plane serves it yet" };
    const objects = [gatewayClass(), gateway(REFERENCE), parameters("infra/large", { replica: 2 })];
    const state = { programmed, addresses: [], refused: new Map() };
    const [status] = desiredStatuses(createClusterView(objects, 0), () => state, 0).flatMap(({ object, status }) =>
      object.kind === "Gateway" ? [status] : [],
    );
    const [listener] = listOf(status?.listeners).map(fieldsOf);
    const conditions = (list: unknown) =>
      Object.fromEntries(
        listOf(list)
          .map(fieldsOf)
          .map(({ type, status: value, reason, message }) => [type, `${value} ${reason} ${message}`]),
      );
    const fault =
      'spec.infrastructure.parametersRef: GatewayParameters infra/large: spec.replica: unknown field, did you mean "replicas"?';
    const { Accepted, Programmed } = conditions(status?.conditions);
    assert.deepEqual(
      [Accepted, Programmed, conditions(listener?.conditions).Programmed],
      isServed
        ? [
            `False InvalidParameters ${fault}`,
            "True Programmed Served, deployed with the last valid parameters",
            "True Programmed Served, deployed with the last valid parameters",
          ]
        : [`False InvalidParameters ${fault}`, `False Invalid ${fault}`, `False Invalid ${fault}`],
    );
  });

test("the parameters of a Gateway take precedence over those of its class", () => {
  const own = gateway(REFERENCE);
  const ofClass = gatewayClass({ ...REFERENCE, name: "small", namespace: "system" });
  const cluster = createCluster([
    parameters("infra/large", { replicas: 4 }),
    parameters("system/small", { replicas: 2, nodeSelector: { pool: "edge" } }),
  ]);
  assert.deepEqual(parametersOf(own, ofClass, cluster), { replicas: 4, nodeSelector: { pool: "edge" } });
});

test("each setting of a Gateway takes precedence over that of its class", () => {
  const ofClass = gatewayClass({ ...REFERENCE, name: "small", namespace: "system" });
  const store = { redis: "redis://redis.infra.svc" };
  const cluster = createCluster([
    parameters("infra/large", { config: { drainTimeout: "10s" } }),
    parameters("system/small", { config: { drainTimeout: "60s", store } }),
  ]);
  const merged = parametersOf(gateway(REFERENCE), ofClass, cluster);
  assert.deepEqual("config" in merged && merged.config?.written, { drainTimeout: "10s", store });
});

for (const [ofClass, ofGateway] of [
  [{ replicas: 2 }, { autoscaling: { maxReplicas: 5 } }],
  [{ autoscaling: { maxReplicas: 5 } }, { replicas: 2 }],
] as const)
  test(`${JSON.stringify(ofGateway)} of a Gateway replaces ${JSON.stringify(ofClass)} of its class`, () => {
    const cluster = createCluster([parameters("infra/large", ofGateway), parameters("system/small", ofClass)]);
    const named = gatewayClass({ ...REFERENCE, name: "small", namespace: "system" });
    assert.deepEqual(parametersOf(gateway(REFERENCE), named, cluster), ofGateway);
  });

const OPTIONS = {
  image: "image",
  replicas: 1,
  serviceType: "ClusterIP",
  backendNetworks: "",
  controllerUrl: "https://controller",
  certificate: "",
  digestKey: "",
} as const;
const FIELDS: Required<GatewayParameters> = {
  replicas: 3,
  autoscaling: { minReplicas: 2, maxReplicas: 6, targetCpuUtilization: 50, targetMemoryUtilization: 80 },
  serviceType: "NodePort",
  serviceAnnotations: { "example.com/balancer": "internal" },
  podAnnotations: { "example.com/scrape": "yes" },
  podLabels: { tier: "edge", "gateway.networking.k8s.io/gateway-name": "stolen" },
  nodeSelector: { pool: "edge" },
  tolerations: [{ key: "edge", operator: "Exists", effect: "NoSchedule" }],
  priorityClassName: "high",
  resources: { requests: { cpu: "2" }, limits: { memory: "4Gi" } },
  config: {
    written: { drainTimeout: "10s" },
    secrets: [],
    secretValues: [],
    hasStore: false,
    hasSessionKey: false,
    drainMs: 10_000,
    spoolBytes: 0,
  },
};

test("every field changes the data plane, and the label of the Gateway stays", () => {
  assert.deepEqual(Object.keys(FIELDS).sort(), Object.keys(parametersSchema.shape).sort());
  const standard = JSON.stringify(dataPlaneManifests(gateway(), OPTIONS));
  for (const [name, value] of Object.entries(FIELDS))
    assert.notEqual(JSON.stringify(dataPlaneManifests(gateway(), OPTIONS, { [name]: value })), standard, name);
  const manifests = dataPlaneManifests(gateway(), OPTIONS, FIELDS);
  const specOfKind = (kind: string) => specOf(manifests.find((one) => one.kind === kind) as KubernetesObject);
  const { replicas, template } = specOfKind("Deployment");
  const { metadata, spec } = fieldsOf(template);
  const [container] = listOf(fieldsOf(spec).containers).map(fieldsOf);
  assert.equal(replicas, undefined, "the autoscaler owns the number of pods");
  assert.equal(specOf(dataPlaneManifests(gateway(), OPTIONS, { replicas: 3 })[1]).replicas, 3);
  assert.equal(specOfKind("Service").type, "NodePort");
  assert.deepEqual(container?.resources, FIELDS.resources);
  assert.deepEqual(fieldsOf(spec).tolerations, FIELDS.tolerations);
  assert.equal(fieldsOf(fieldsOf(metadata).labels)["gateway.networking.k8s.io/gateway-name"], "edge");
});

test("an autoscaler scales the Deployment on CPU unless memory is given", () => {
  const autoscaler = (autoscaling: NonNullable<GatewayParameters["autoscaling"]>) =>
    specOf(
      dataPlaneManifests(gateway(), OPTIONS, { autoscaling }).find(({ kind }) => kind === "HorizontalPodAutoscaler"),
    );
  const metric = (name: string, averageUtilization: number) => ({
    type: "Resource",
    resource: { name, target: { type: "Utilization", averageUtilization } },
  });
  const { scaleTargetRef, ...plain } = autoscaler({ maxReplicas: 5 });
  assert.deepEqual(scaleTargetRef, { apiVersion: "apps/v1", kind: "Deployment", name: "edge-gateway" });
  assert.deepEqual(plain, { minReplicas: 1, maxReplicas: 5, metrics: [metric("cpu", 70)] });
  assert.deepEqual(autoscaler({ maxReplicas: 5, targetMemoryUtilization: 60 }).metrics, [metric("memory", 60)]);
  const both = { maxReplicas: 5, targetCpuUtilization: 50, targetMemoryUtilization: 60 };
  assert.deepEqual(autoscaler(both).metrics, [metric("cpu", 50), metric("memory", 60)]);
  assert.equal(parametersSchema.safeParse({ autoscaling: { minReplicas: 6, maxReplicas: 5 } }).success, false);
});
