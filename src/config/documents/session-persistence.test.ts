/** `sessionPersistence` of HTTPRoute and GRPCRoute rules. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { createClusterView } from "../../kubernetes/cluster-snapshots.ts";
import { isKubernetesObject } from "./cluster.ts";
import { identityOf } from "./documents.ts";

const WORLD = `
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
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { ports: [{ port: 8080 }] }
---
apiVersion: v1
kind: Service
metadata: { name: picker, namespace: shop }
spec: { ports: [{ port: 9002 }] }
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: { name: models, namespace: shop }
spec:
  selector: { matchLabels: { app: models } }
  targetPorts: [{ number: 8000 }]
  endpointPickerRef: { name: picker, port: { number: 9002 } }
---
`;
const route = (rules: string, kind = "HTTPRoute", name = "web", more = "parentRefs: [{ name: edge }], "): string => `
apiVersion: gateway.networking.k8s.io/v1
kind: ${kind}
metadata: { name: ${name}, namespace: shop, uid: 6e0b1a52-0001-4000-8000-${name === "web" ? "000000000001" : "000000000002"} }
spec: { ${more}rules: [${rules}] }
---
`;
const WEB = "backendRefs: [{ name: web, port: 8080 }]";
const POOL = "backendRefs: [{ group: inference.networking.k8s.io, kind: InferencePool, name: models }]";
const CHILD = "backendRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: child }]";
const KEY = "6e0b1a52-0001-4000-8000-000000000001";
const CHILD_KEY = "6e0b1a52-0001-4000-8000-000000000002";

function translate(yaml: string, kind = "HTTPRoute") {
  const objects = parseAllDocuments(WORLD + yaml)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
  const view = createClusterView(objects, 0);
  const outcome = view.result.routeOutcomes.find(
    ({ document }) => identityOf(document).kind === kind && identityOf(document).name === "web",
  );
  return {
    sessions: view.result.routes.map(({ route: one, closed }) =>
      closed === undefined ? one.policies?.sessionPersistence : "closed",
    ),
    accepted: outcome?.parents[0]?.accepted,
  };
}

const HONORED: [written: string, config: object][] = [
  ["{}", { type: "cookie" }],
  ["{ type: Cookie, sessionName: stick }", { type: "cookie", name: "stick" }],
  ["{ type: Header, absoluteTimeout: 1h30m }", { type: "header", absoluteTimeout: "1h30m" }],
  ["{ idleTimeout: 10m }", { type: "cookie", idleTimeout: "10m" }],
  [
    "{ absoluteTimeout: 5m, cookieConfig: { lifetimeType: Permanent } }",
    { type: "cookie", absoluteTimeout: "5m", lifetime: "permanent" },
  ],
];
for (const kind of ["HTTPRoute", "GRPCRoute"])
  for (const [written, config] of HONORED)
    test(`a rule of ${kind} with sessionPersistence ${written} is served`, () => {
      const { sessions, accepted } = translate(route(`{ sessionPersistence: ${written}, ${WEB} }`, kind), kind);
      assert.deepEqual(sessions, [{ ...config, key: KEY }]);
      assert.equal(accepted?.isTrue, true);
    });

const REFUSED: [written: string, message: RegExp][] = [
  ["{ sessionName: 'a b' }", /sessionName/],
  ["{ type: Header, sessionName: Host }", /sessionName/],
  ["{ type: Query }", /type/],
  ["{ absoluteTimeout: 0s }", /absoluteTimeout/],
  ["{ cookieConfig: { lifetimeType: Permanent } }", /cookieConfig\.lifetimeType/],
  ["{ sameSite: None }", /sameSite is not supported/],
  ["{ cookieConfig: { path: / } }", /path is not supported/],
];
for (const kind of ["HTTPRoute", "GRPCRoute"])
  for (const [written, message] of REFUSED)
    test(`a rule of ${kind} with sessionPersistence ${written} is blocked and its route not accepted`, () => {
      const { sessions, accepted } = translate(route(`{ sessionPersistence: ${written}, ${WEB} }`, kind), kind);
      assert.deepEqual(sessions, ["closed"]);
      assert.deepEqual([accepted?.isTrue, accepted?.reason], [false, "UnsupportedValue"]);
      assert.match(String(accepted?.message), message);
    });

test("an InferencePool has no sessions, because its picker selects the pod", () => {
  const { sessions, accepted } = translate(route(`{ sessionPersistence: {}, ${POOL} }`));
  assert.deepEqual(sessions, ["closed"]);
  assert.match(String(accepted?.message), /InferencePool/);
});

test("a child route inherits sessions, or has its own, but not for an InferencePool", () => {
  const parent = route(`{ sessionPersistence: { sessionName: outer }, ${CHILD} }`);
  const child = (rule: string): string => route(rule, "HTTPRoute", "child", "");
  const outer = { type: "cookie", name: "outer", key: KEY };
  assert.deepEqual(translate(parent + child(`{ ${WEB} }`)).sessions, [outer, undefined]);
  assert.deepEqual(translate(parent + child(`{ sessionPersistence: { sessionName: own }, ${WEB} }`)).sessions, [
    { type: "cookie", name: "own", key: CHILD_KEY },
    undefined,
  ]);
  assert.deepEqual(translate(parent + child(`{ ${POOL} }`)).sessions, ["closed", undefined]);
});
