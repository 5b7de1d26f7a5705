import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { policies } from "../../policies/index.ts";
import { configSchema } from "../schema/schema.ts";
import { createCluster, isKubernetesObject } from "./cluster.ts";
import { translateGrpcMatch } from "./route-document.ts";
import { clusterDocument } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

const CLUSTER = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: shop }
spec:
  gatewayClassName: gateway
  listeners:
    - { name: all, port: 80, protocol: HTTP }
    - { name: http, port: 81, protocol: HTTP, allowedRoutes: { kinds: [{ kind: HTTPRoute }] } }
    - { name: grpc, port: 82, protocol: HTTP, allowedRoutes: { kinds: [{ kind: GRPCRoute }, { kind: TCPRoute }] } }
---
apiVersion: v1
kind: Service
metadata: { name: calls, namespace: shop }
spec: { ports: [{ port: 9000 }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: calls, namespace: shop }
spec: { parentRefs: [{ name: edge }], rules: [{ backendRefs: [{ name: calls, port: 9000 }] }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: { name: calls, namespace: shop }
spec:
  parentRefs: [{ name: edge, sectionName: all }, { name: edge, sectionName: http }, { name: edge, sectionName: grpc }]
  hostnames: [calls.test]
  rules:
    - matches: [{ method: { service: a.B, method: C }, headers: [{ name: v, value: "1" }] }]
      filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: x, value: y }] } }]
      backendRefs: [{ name: calls, port: 9000 }]
`;

function translate(yaml: string, isCluster = true) {
  const objects = parseAllDocuments(yaml)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
  return translateResources({
    documents: objects.map(clusterDocument),
    standalone: { gateways: [], routes: [], services: isCluster ? {} : { calls: "127.0.0.1:9000" } },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    ...(isCluster ? { cluster: createCluster(objects) } : {}),
    nowMs: 0,
  });
}

test("calls go to their Service by HTTP/2, beside an HTTPRoute of the same name", () => {
  const { routes, routeOutcomes, gatewayOutcomes, problems } = translate(CLUSTER);
  const grpc = routes.filter(({ route }) => route.name.startsWith("grpc:"));
  assert.deepEqual(
    grpc.map(({ route }) => route.gateways),
    [["shop/edge:80"], ["shop/edge:82"]],
  );
  assert.deepEqual(grpc[0]?.route.matches, [{ path: { exact: "/a.B/C" }, headers: [{ name: "v", exact: "1" }] }]);
  assert.deepEqual(grpc[0]?.route.backends, [{ service: { name: "shop/calls:9000" }, protocol: "h2c" }]);
  assert.deepEqual(grpc[0]?.route.policies, { requestHeaderModifier: { set: { x: "y" } } });
  const outcome = routeOutcomes.find(({ document }) => (document.value as { kind: string }).kind === "GRPCRoute");
  assert.deepEqual(
    outcome?.parents.map(({ accepted }) => accepted.reason),
    ["Accepted", "NotAllowedByListeners", "Accepted"],
  );
  assert.deepEqual(
    gatewayOutcomes[0]?.listeners.map((one) => [one.supportedKinds.map(({ kind }) => kind), one.attachedRoutes]),
    [
      [["HTTPRoute", "GRPCRoute"], 2],
      [["HTTPRoute"], 1],
      [["GRPCRoute"], 1],
    ],
  );
  assert.match(problems.map((one) => one.toLine()).join(), /TCPRoute is not supported: use HTTPRoute or GRPCRoute/);
});

test("in files, too", () => {
  const { routes } = translate(CLUSTER, false);
  assert.deepEqual(routes.find(({ route }) => route.name === "grpc:shop/calls")?.route.backends, [
    { host: "127.0.0.1:9000", protocol: "h2c" },
  ]);
});

test("a Service of another namespace needs a grant for GRPCRoutes", () => {
  const elsewhere = CLUSTER.replace(
    "name: calls, namespace: shop }\nspec: { ports",
    "name: calls, namespace: other }\nspec: { ports",
  ).replaceAll("{ name: calls, port: 9000 }", "{ name: calls, namespace: other, port: 9000 }");
  const grant = (kind: string): string => `
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: { name: g, namespace: other }
spec:
  from: [{ group: gateway.networking.k8s.io, kind: ${kind}, namespace: shop }]
  to: [{ group: "", kind: Service }]
`;
  const verdicts = (yaml: string) =>
    translate(yaml).routeOutcomes.map(({ document, parents }) => [
      (document.value as { kind: string }).kind,
      parents[0]?.resolvedRefs.reason,
    ]);
  assert.deepEqual(verdicts(elsewhere + grant("HTTPRoute")), [
    ["HTTPRoute", "ResolvedRefs"],
    ["GRPCRoute", "RefNotPermitted"],
  ]);
  assert.deepEqual(verdicts(elsewhere + grant("GRPCRoute")), [
    ["HTTPRoute", "RefNotPermitted"],
    ["GRPCRoute", "ResolvedRefs"],
  ]);
});

test("a match of a method is one of a path", () => {
  for (const [match, expected] of [
    [{}, { path: { pathPrefix: "/" } }],
    [{ method: { service: "a.B" } }, { path: { pathPrefix: "/a.B" } }],
    [{ method: { method: "C.d" } }, { path: { regex: "/[^/]+/C\\.d" } }],
    [{ method: { type: "RegularExpression", service: "a.*", method: "C|D" } }, { path: { regex: "/(?:a.*)/(?:C|D)" } }],
    [{ method: { type: "RegularExpression", method: "C" } }, { path: { regex: "/[^/]+/(?:C)" } }],
    [{ method: {} }, "expected `service` or `method`"],
    [{ method: { type: "Prefix", service: "a" } }, "the method match Prefix is not supported"],
    [{ method: "C" }, "expected `method` to be an object"],
  ] as const)
    assert.deepEqual(translateGrpcMatch(match), expected, JSON.stringify(match));
});
