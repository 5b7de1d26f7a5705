/** GatewayPolicies for Services and Backends apply to every route rule that refers to them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { conditions, LIMIT, policy, translate } from "../../../test/support/resources/translate.ts";
import { createClusterView } from "../../kubernetes/cluster-snapshots.ts";
import type { KubernetesObject } from "./cluster.ts";

const API = "apiVersion: gateway.networking.k8s.io/v1";
const GATEWAY = `---
${API}
kind: Gateway
metadata: { name: edge }
spec: { listeners: [{ name: http, port: 8080, protocol: HTTP }] }
`;
const route = (name: string, rules: string): string => `---
${API}
kind: HTTPRoute
metadata: { name: ${name} }
spec: { parentRefs: [{ name: edge }], rules: [${rules}] }
`;
const BACKEND = `---
apiVersion: policy.gateway.internal/v1alpha1
kind: Backend
metadata: { name: models }
spec: { host: example.com:80 }
`;
const SERVICE_REF = "{ name: web, port: 8080 }";
const BACKEND_REF = "{ group: policy.gateway.internal, kind: Backend, name: models }";
const FILES = [
  GATEWAY,
  BACKEND,
  route("shop", `{ backendRefs: [${SERVICE_REF}, ${BACKEND_REF}] }, { backendRefs: [${SERVICE_REF}] }`),
  route("cart", `{ backendRefs: [${BACKEND_REF}] }`),
].join("");
const HEADERS = "traffic: { headerModifiers: { request: { set: { x-a: b } } } }";
const TIMEOUT = "traffic: { timeouts: { request: 5s } }";
const service = (more = ""): string => `targetRefs: [{ group: "", kind: Service, name: web${more} }]`;
const MODELS = "targetRefs: [{ group: policy.gateway.internal, kind: Backend, name: models }]";

const attached = (spec: string, files = FILES): string[] =>
  translate(files + policy(spec)).attachments.map(({ target }) => `${target.kind} ${target.name}`);
const closed = (spec: string): string[] =>
  translate(FILES + policy(spec)).closures.map(({ target }) => `${target.kind} ${target.name}`);

test("a policy for a Service or Backend applies to each rule that refers to it", () => {
  assert.deepEqual(attached(`${service()}\n${HEADERS}`), [
    "backend shop/rule0/backend0",
    "backend shop/rule1/backend0",
  ]);
  assert.deepEqual(attached(`${MODELS}\n${HEADERS}`), ["backend cart/backend0", "backend shop/rule0/backend1"]);
  assert.deepEqual(conditions(translate(FILES + policy(`${service()}\n${HEADERS}`)).policies[0]), [
    "Gateway edge: Accepted True Valid: Policy accepted",
    "Gateway edge: Attached True Attached: Attached to all targets",
  ]);
});

test("a selector selects Backends by their labels", () => {
  const files = FILES.replace("metadata: { name: models }", "metadata: { name: models, labels: { team: a } }");
  const selecting = (labels: string): string =>
    `targetSelectors: [{ group: policy.gateway.internal, kind: Backend, matchLabels: { ${labels} } }]\n${HEADERS}`;
  assert.deepEqual(attached(selecting("team: a"), files), ["backend cart/backend0", "backend shop/rule0/backend1"]);
  assert.deepEqual(attached(selecting("team: b"), files), []);
});

const unattached: [name: string, spec: string, message: string][] = [
  [
    "an unknown Service",
    'targetRefs: [{ group: "", kind: Service, name: gone }]',
    "False TargetNotFound: Service default/gone was not found",
  ],
  [
    "a Service that no route uses",
    'targetRefs: [{ group: "", kind: Service, name: plain }]',
    "False TargetNotAttached: Service default/plain is not used by a route of a Gateway",
  ],
  [
    "a Service of another group",
    "targetRefs: [{ group: gateway.networking.k8s.io, kind: Service, name: web }]",
    'False TargetNotSupported: spec.targetRefs[0].group: expected ""',
  ],
];
for (const [name, spec, message] of unattached)
  test(`${name} is not a target`, () => {
    assert.deepEqual(attached(`${spec}\n${HEADERS}`), []);
    const [, attachedCondition = ""] = conditions(translate(FILES + policy(`${spec}\n${HEADERS}`)).policies[0]);
    assert.ok(attachedCondition.endsWith(message), attachedCondition);
  });

test("a policy that cannot apply to a backend is refused, and closes the backend if it protects", () => {
  assert.deepEqual(closed(`${service()}\n${LIMIT}`), []);
  assert.match(
    String(conditions(translate(FILES + policy(`${service()}\n${LIMIT}`)).policies[0])),
    /Accepted False Invalid: spec\.traffic\.rateLimit: cannot apply to a Service/,
  );
  const both = ["backend shop/rule0/backend0", "backend shop/rule1/backend0"];
  assert.deepEqual(closed(`${service()}\ntraffic: { authorization: { rules: [jwt.sub] } }`), both);
  assert.deepEqual(closed(`${service()}\n${HEADERS.replace("headerModifiers", "headerModifers")}`), both);
  assert.deepEqual(
    closed(`${service(", sectionName: main")}\ntraffic: { authorization: { rules: [jwt.sub] } }`),
    both,
    "a section that does not exist",
  );
});

test("a backend has one policy of a kind: filters, the standalone configuration, and older policies take precedence", () => {
  const filter = "filters: [{ type: URLRewrite, urlRewrite: { hostname: own.test } }]";
  const files = GATEWAY + route("shop", `{ backendRefs: [{ name: web, port: 8080, ${filter} }] }`);
  const rewrite = `${service()}\ntraffic: { urlRewrite: { authority: policy.test } }`;
  assert.deepEqual(attached(rewrite, files), []);
  assert.match(
    String(conditions(translate(files + policy(rewrite)).policies[0])),
    /Accepted False Conflicted: .*already has urlRewrite from HTTPRoute default\/shop/,
  );
  const standalone = {
    gateways: [],
    routes: [],
    services: { web: { host: "127.0.0.1:1", policies: { timeout: { requestTimeout: "1s" } } } },
  };
  const result = translate(
    GATEWAY + route("shop", `{ backendRefs: [${SERVICE_REF}] }`) + policy(`${service()}\n${TIMEOUT}`),
    {
      standalone,
    },
  );
  assert.match(String(conditions(result.policies[0])), /already has timeout from the standalone configuration/);
  const two = translate(
    FILES + policy(`${service()}\n${TIMEOUT}`, "first") + policy(`${service()}\n${TIMEOUT}`, "second"),
  );
  assert.equal(two.attachments.length, 2);
  assert.match(
    String(conditions(two.policies[1])),
    /Conflicted: .*already has timeout from GatewayPolicy default\/first/,
  );
});

const object = (
  kind: string,
  key: string,
  spec: object,
  apiVersion = "gateway.networking.k8s.io/v1",
): KubernetesObject => {
  const [name = "", namespace] = key.split("/").reverse();
  return { apiVersion, kind, metadata: { name, ...(namespace === undefined ? {} : { namespace }) }, spec };
};
const CLUSTER: readonly KubernetesObject[] = [
  object("GatewayClass", "gateway", { controllerName: "policy.gateway.internal/gateway" }),
  object("Gateway", "infra/edge", {
    gatewayClassName: "gateway",
    listeners: [
      { name: "http", port: 80, protocol: "HTTP", allowedRoutes: { namespaces: { from: "All" } } },
      { name: "tcp", port: 9000, protocol: "TCP", allowedRoutes: { namespaces: { from: "All" } } },
    ],
  }),
  object(
    "Service",
    "shop/web",
    {
      ports: [
        { name: "main", port: 8080 },
        { name: "next", port: 8081 },
        { name: "idle", port: 8082 },
      ],
    },
    "v1",
  ),
  object("HTTPRoute", "shop/web", {
    parentRefs: [{ name: "edge", namespace: "infra" }],
    rules: [
      {
        backendRefs: [
          { name: "web", port: 8080 },
          { name: "web", port: 8081 },
        ],
      },
    ],
  }),
  object("HTTPRoute", "team/far", {
    parentRefs: [{ name: "edge", namespace: "infra" }],
    rules: [{ backendRefs: [{ name: "web", namespace: "shop", port: 8080 }] }],
  }),
  object("TCPRoute", "shop/stream", {
    parentRefs: [{ name: "edge", namespace: "infra", sectionName: "tcp" }],
    rules: [{ backendRefs: [{ name: "web", port: 8080 }] }],
  }),
];
const GRANT = object(
  "ReferenceGrant",
  "shop/far",
  {
    from: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", namespace: "team" }],
    to: [{ group: "", kind: "Service" }],
  },
  "gateway.networking.k8s.io/v1beta1",
);
const clusterPolicy = (target: object, traffic: object, namespace = "shop") =>
  object(
    "GatewayPolicy",
    `${namespace}/own`,
    { targetRefs: [{ group: "", kind: "Service", name: "web", ...target }], traffic },
    "policy.gateway.internal/v1alpha1",
  );
const headers = { headerModifiers: { request: { set: { "x-a": "b" } } } };
const rules = { authorization: { rules: ["true"] } };
const namesOf = (...objects: KubernetesObject[]) =>
  createClusterView([...CLUSTER, ...objects], 0).result.attachments.map(({ target }) => target.name);

test("in a cluster the owner of a Service sets its policies, also for routes of other namespaces that it grants", () => {
  assert.deepEqual(namesOf(clusterPolicy({}, headers)), ["shop/web/backend0", "shop/web/backend1"]);
  assert.deepEqual(namesOf(GRANT, clusterPolicy({}, headers)), [
    "shop/web/backend0",
    "shop/web/backend1",
    "team/far/backend0",
  ]);
  assert.deepEqual(namesOf(GRANT, clusterPolicy({}, headers, "team")), []);
  assert.deepEqual(namesOf(clusterPolicy({ sectionName: "next" }, headers)), ["shop/web/backend1"]);
});

test("the data planes of all routes to the Service have its policies", () => {
  const { snapshots } = createClusterView([...CLUSTER, clusterPolicy({}, headers)], 0);
  const { documents = [] } = snapshots.get("infra/edge") ?? {};
  assert.ok(documents.some(({ kind }) => kind === "GatewayPolicy"));
  const [gatewayClass] = CLUSTER;
  const again = createClusterView([gatewayClass as KubernetesObject, ...documents], 0);
  assert.deepEqual(
    again.result.attachments.map(({ target }) => target.name),
    ["shop/web/backend0", "shop/web/backend1"],
  );
});

test("a selector selects Services by their labels, in the controller and in data planes", () => {
  const labeled = CLUSTER.map((one) =>
    one.kind === "Service" ? { ...one, metadata: { ...one.metadata, labels: { team: "a" } } } : one,
  );
  const selecting = (team: string, traffic: object, namespace = "shop") => {
    const targetSelectors = [{ group: "", kind: "Service", matchLabels: { team } }];
    return object(
      "GatewayPolicy",
      `${namespace}/own`,
      { targetSelectors, traffic },
      "policy.gateway.internal/v1alpha1",
    );
  };
  const viewOf = (policy: KubernetesObject) => createClusterView([...labeled, policy], 0);
  const names = (view: ReturnType<typeof viewOf>) => view.result.attachments.map(({ target }) => target.name);
  const selected = viewOf(selecting("a", headers));
  assert.deepEqual(names(selected), ["shop/web/backend0", "shop/web/backend1"]);
  assert.deepEqual(names(viewOf(selecting("b", headers))), []);
  assert.deepEqual(names(viewOf(selecting("a", headers, "team"))), []);
  const { documents = [] } = selected.snapshots.get("infra/edge") ?? {};
  const [gatewayClass] = CLUSTER;
  assert.deepEqual(names(createClusterView([gatewayClass as KubernetesObject, ...documents], 0)), [
    "shop/web/backend0",
    "shop/web/backend1",
  ]);
  const closures = viewOf(selecting("a", rules)).result.closures.map(({ target }) => target.name);
  assert.deepEqual(closures, ["TCPRoute shop/stream/backend0"]);
});

test("a port that no route uses closes nothing, and a protecting policy closes connections of TCPRoutes", () => {
  const view = (traffic: object, target: object = {}) =>
    createClusterView([...CLUSTER, clusterPolicy(target, traffic)], 0).result;
  assert.deepEqual(view(rules, { sectionName: "idle" }).closures, []);
  assert.match(
    JSON.stringify(view(rules, { sectionName: "idle" }).policies[0]?.status),
    /TargetNotAttached.*is not used by a route of a Gateway/,
  );
  const tcp = ["TCPRoute shop/stream/backend0"];
  assert.deepEqual(
    view(rules).closures.map(({ target }) => target.name),
    tcp,
  );
  assert.deepEqual(view(headers).closures, []);
  assert.match(
    JSON.stringify(view(rules).policies[0]?.status),
    /cannot apply to connections of TLSRoutes and TCPRoutes/,
  );
});
