/**
 * A BackendTLSPolicy whose reference names nothing is not accepted, and the Service that it probably means gets no
 * requests in plain text.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createCluster, type KubernetesObject } from "../config/documents/cluster.ts";
import { clusterDocument } from "../config/documents/snapshot.ts";
import { translateResources } from "../config/documents/translate.ts";
import { configSchema } from "../config/schema/schema.ts";
import { fieldsOf, listOf } from "../config/text/value-shapes.ts";
import { policies } from "../policies/index.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { desiredStatuses, type GatewayState } from "./status.ts";

const GATEWAY_API = "gateway.networking.k8s.io/v1";
const POLICY_GROUP = "policy.gateway.internal";
const STATE: GatewayState = {
  programmed: { isTrue: true, reason: "Programmed", message: "Served" },
  addresses: [],
  refused: new Map(),
};

function object(apiVersion: string, kind: string, name: string, spec: object): KubernetesObject {
  return { apiVersion, kind, metadata: { name, namespace: "shop" }, spec } as KubernetesObject;
}

const ports = [
  { name: "http", port: 80 },
  { name: "dns", port: 53, protocol: "UDP" },
];
const WORLD: readonly KubernetesObject[] = [
  object(GATEWAY_API, "GatewayClass", "gateway", { controllerName: `${POLICY_GROUP}/gateway` }),
  object(GATEWAY_API, "Gateway", "edge", {
    gatewayClassName: "gateway",
    listeners: [{ name: "http", port: 80, protocol: "HTTP" }],
  }),
  object(GATEWAY_API, "HTTPRoute", "web", {
    parentRefs: [{ name: "edge" }],
    rules: [
      { backendRefs: [{ name: "web", port: 80 }] },
      { matches: [{ path: { value: "/own" } }], backendRefs: [{ group: POLICY_GROUP, kind: "Backend", name: "own" }] },
    ],
  }),
  object("v1", "Service", "web", { ports }),
  object("v1", "Service", "spare", { ports }),
  object(`${POLICY_GROUP}/v1alpha1`, "Backend", "own", { host: "own.example.com:80" }),
].map((one) => (one.kind === "GatewayClass" ? { ...one, metadata: { name: "gateway" } } : one));

type Traffic = "TLS" | "plain" | "closed";

function trafficOf(objects: readonly KubernetesObject[]): readonly [service: Traffic, backend: Traffic] {
  const { routes } = translateResources({
    documents: objects.map(clusterDocument),
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    cluster: createCluster(objects),
    nowMs: 0,
  });
  const of = (rule: number): Traffic => {
    const written = routes[rule];
    if (written?.closedBackends?.has(0)) return "closed";
    return fieldsOf(written?.route.backends?.[0]?.policies).backendTLS === undefined ? "plain" : "TLS";
  };
  return [of(0), of(1)];
}

/** The reasons of the condition Accepted; True is `true`. */
function acceptedOf(objects: readonly KubernetesObject[]): string[] {
  return desiredStatuses(createClusterView(objects, 0), () => STATE, 0)
    .filter(({ object: { kind } }) => kind === "BackendTLSPolicy")
    .flatMap(({ status }) => listOf(status.ancestors).flatMap((one) => listOf(fieldsOf(one).conditions).map(fieldsOf)))
    .filter(({ type }) => type === "Accepted")
    .map(({ status, reason }) => (status === "True" ? "true" : String(reason)));
}

const SPARE = { group: "", kind: "Service", name: "spare" };
const PLACES: Readonly<Record<string, (reference: object) => object>> = {
  "in the list": (reference) => ({ targetRefs: [reference] }),
  "beside another target": (reference) => ({ targetRefs: [SPARE, reference] }),
  "as the 17th entry": (reference) => ({ targetRefs: [...Array(16).fill(SPARE), reference] }),
  "instead of the list": (reference) => ({ targetRefs: reference }),
  "as targetRef": (reference) => ({ targetRef: reference }),
};
const KINDS = ["Service", "service", "", "Backend", "ConfigMap"];
const GROUPS = ["", "core", POLICY_GROUP, "serving.example.com"];
const NAMES = ["web", "own", "gone", ""];
const SECTIONS = [undefined, "http", "htpp", "HTTP", "dns", "80", 80, ""];
const NAMESPACES = [undefined, "shop", "other"];

const CASES = Object.entries(PLACES).flatMap(([place, specOf]) =>
  KINDS.flatMap((kind) =>
    GROUPS.flatMap((group) =>
      NAMES.flatMap((name) =>
        SECTIONS.flatMap((sectionName) =>
          NAMESPACES.map((namespace) => ({ place, specOf, reference: { kind, group, name, sectionName, namespace } })),
        ),
      ),
    ),
  ),
);
/** `TLS_POLICY_CASES=all` runs all of them. */
const MOST = process.env.TLS_POLICY_CASES === "all" ? CASES.length : 1_200;

test(`a reference of a BackendTLSPolicy applies or fails closed, in ${MOST} of ${CASES.length} forms`, () => {
  for (let i = 0; i < MOST; i++) {
    const one = CASES[(i * 7_919) % CASES.length];
    if (one === undefined) continue;
    const { place, specOf, reference } = one;
    const { kind, group, name, sectionName, namespace = "shop" } = reference;
    const validation = { hostname: "a.test", wellKnownCACertificates: "System" };
    const objects = [...WORLD, object(GATEWAY_API, "BackendTLSPolicy", "tls", { ...specOf(reference), validation })];
    const isRight =
      (place === "in the list" || place === "beside another target") &&
      `${kind} ${group} ${namespace}` === "Service  shop" &&
      name === "web" &&
      (sectionName === undefined || sectionName === "http");
    const isOfOthers = group === "serving.example.com";
    const means = (what: string): boolean =>
      !isOfOthers && namespace === "shop" && (kind === "" || kind.toLowerCase() === what);
    const traffic = [
      isRight ? "TLS" : name === "web" && means("service") ? "closed" : "plain",
      name === "own" && means("backend") ? "closed" : "plain",
    ];
    const shown = `${place}: ${JSON.stringify(reference)}`;
    assert.deepEqual(trafficOf(objects), traffic, shown);
    const accepted = acceptedOf(objects);
    if (isRight) assert.deepEqual(accepted, ["true"], shown);
    else if (isOfOthers) assert.deepEqual(accepted, [], shown);
    else assert.match(accepted.join(), /^(?:TargetNotFound|Invalid)$/, shown);
  }
});

test("a port that has a policy of its own keeps it when another policy has a wrong port", () => {
  const validation = { hostname: "a.test", wellKnownCACertificates: "System" };
  const policyFor = (name: string, sectionName: string) =>
    object(GATEWAY_API, "BackendTLSPolicy", name, {
      targetRefs: [{ group: "", kind: "Service", name: "web", sectionName }],
      validation,
    });
  assert.deepEqual(trafficOf([...WORLD, policyFor("wrong", "htpp"), policyFor("right", "http")]), ["TLS", "plain"]);
  const whole = object(GATEWAY_API, "BackendTLSPolicy", "whole", {
    targetRefs: [{ group: "", kind: "Service", name: "web" }],
    validation,
  });
  assert.deepEqual(trafficOf([...WORLD, policyFor("wrong", "htpp"), whole]), ["closed", "plain"]);
});

test("the message names the reference, the ports, and what happens", () => {
  const policy = object(GATEWAY_API, "BackendTLSPolicy", "tls", {
    targetRefs: [SPARE, { group: "", kind: "Service", name: "web", sectionName: "htpp" }],
    validation: { hostname: "a.test", wellKnownCACertificates: "System" },
  });
  const [status] = desiredStatuses(createClusterView([...WORLD, policy], 0), () => STATE, 0).filter(
    ({ object: { kind } }) => kind === "BackendTLSPolicy",
  );
  assert.match(
    JSON.stringify(status),
    /spec\.targetRefs\[1\]\.sectionName: Service shop\/web has no port with the name htpp \(its TCP ports are http\); requests to it get 500 until this is fixed; the other targets are in effect/,
  );
});
