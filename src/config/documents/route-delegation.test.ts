/** HTTPRoute rules that delegate to other HTTPRoutes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { conditions, LIMIT, policy, translate } from "../../../test/support/resources/translate.ts";
import { createClusterView } from "../../kubernetes/cluster-snapshots.ts";
import { desiredStatuses } from "../../kubernetes/status.ts";
import { isKubernetesObject } from "./cluster.ts";
import { commonMatches } from "./route-delegation.ts";

const GATEWAY = `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge }
spec: { listeners: [{ name: http, port: 8080, protocol: HTTP }] }
`;
const route = (name: string, spec: string, namespace = "default"): string => `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: ${name}, namespace: ${namespace} }
spec: { ${spec} }
`;
const to = (...names: string[]): string =>
  `backendRefs: [${names.map((name) => `{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: ${name} }`).join()}]`;
const WEB = "backendRefs: [{ name: web, port: 8080 }]";
const prefix = (value: string): string => `matches: [{ path: { type: PathPrefix, value: ${value} } }]`;
const parent = (rule: string): string =>
  route("root", `parentRefs: [{ name: edge }], hostnames: [a.test], rules: [${rule}]`);
const child = (rule: string, name = "child"): string =>
  route(name, `parentRefs: [{ kind: HTTPRoute, name: root }], rules: [${rule}]`);

const served = (yaml: string) =>
  translate(GATEWAY + yaml).routes.map(({ route: { name, matches = [], hostnames }, closed, closedBackends }) => {
    const paths = matches.map(({ path }) => Object.values(path as object)[0]);
    const state = closed === undefined ? (closedBackends ? "500" : "open") : "closed";
    return `${hostnames?.join()} ${name} ${paths.join()} ${state}`;
  });

test("the rules of the child serve what both match, and the rest of the parent's rule gets 404", () => {
  const yaml =
    parent(`{ ${prefix("/shop")}, ${to("child")} }`) +
    child(`{ ${prefix("/shop/cart")}, ${WEB} }, { ${prefix("/other")}, ${WEB} }`);
  assert.deepEqual(served(yaml), ["a.test root/default/child/rule0 /shop/cart open", "a.test root /shop open"]);
  const [, rest] = translate(GATEWAY + yaml).routes;
  assert.deepEqual(rest?.route.policies, { directResponse: { status: 404 } });
});

const MATCHES: [parent: object, child: object, common: object | undefined][] = [
  [{ path: { pathPrefix: "/a" } }, { path: { pathPrefix: "/a/b" } }, { path: { pathPrefix: "/a/b" } }],
  [{ path: { pathPrefix: "/a" } }, { path: { pathPrefix: "/" } }, { path: { pathPrefix: "/a" } }],
  [{ path: { pathPrefix: "/a" } }, {}, { path: { pathPrefix: "/a" } }],
  [{ path: { pathPrefix: "/a" } }, { path: { pathPrefix: "/ab" } }, undefined],
  [{ path: { pathPrefix: "/a/" } }, { path: { exact: "/a" } }, { path: { exact: "/a" } }],
  [{ path: { pathPrefix: "/a" } }, { path: { exact: "/b" } }, undefined],
  [{}, { path: { regex: "/x.*" } }, { path: { regex: "/x.*" } }],
  [{ method: "GET" }, { method: "POST" }, undefined],
  [{ method: "GET" }, {}, { path: { pathPrefix: "/" }, method: "GET" }],
  [
    { headers: [{ name: "a", exact: "1" }], query: [{ name: "q", exact: "1" }] },
    { headers: [{ name: "b", exact: "2" }] },
    {
      path: { pathPrefix: "/" },
      headers: [
        { name: "a", exact: "1" },
        { name: "b", exact: "2" },
      ],
      query: [{ name: "q", exact: "1" }],
    },
  ],
];
for (const [one, other, common] of MATCHES)
  test(`${JSON.stringify(one)} and ${JSON.stringify(other)} have ${JSON.stringify(common) ?? "nothing"} in common`, () => {
    assert.deepEqual(commonMatches([one as never], [other as never]), common === undefined ? [] : [common]);
  });

test("a child inherits filters and timeouts, can set its own timeouts, and is blocked if it repeats a filter", () => {
  const filter = (name: string): string =>
    `filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: ${name}, value: "1" }] } }]`;
  const root = parent(`{ ${prefix("/")}, ${filter("x-root")}, timeouts: { request: 5s }, ${to("child")} }`);
  const policiesOf = (rule: string) => translate(GATEWAY + root + child(rule)).routes[0]?.route.policies;
  const headers = { requestHeaderModifier: { set: { "x-root": "1" } } };
  assert.deepEqual(policiesOf(`{ ${WEB} }`), { ...headers, timeout: { requestTimeout: "5s" } });
  assert.deepEqual(policiesOf(`{ timeouts: { request: 9s }, ${WEB} }`), {
    ...headers,
    timeout: { requestTimeout: "9s" },
  });
  assert.deepEqual(served(root + child(`{ ${filter("x-own")}, ${WEB} }`)), [
    "a.test root/default/child/rule0 / closed",
    "a.test root / open",
  ]);
});

test("a child can delegate further, and a cycle is refused", () => {
  const chain =
    parent(`{ ${prefix("/a")}, ${to("child")} }`) +
    child(`{ ${prefix("/a/b")}, ${to("leaf")} }`) +
    route("leaf", `rules: [{ ${prefix("/a/b/c")}, ${WEB} }]`);
  assert.deepEqual(served(chain), [
    "a.test root/default/child/rule0/default/leaf/rule0 /a/b/c open",
    "a.test root/default/child/rule0 /a/b open",
    "a.test root /a open",
  ]);
  const cycle = parent(`{ ${prefix("/a")}, ${to("child")} }`) + child(`{ ${to("root")} }`);
  assert.deepEqual(served(cycle), ["a.test root/default/child/rule0 /a 500", "a.test root /a open"]);
});

const REFUSED: [what: string, yaml: string, state: string][] = [
  ["a child that does not exist", parent(`{ ${to("gone")} }`), "500"],
  [
    "a child with hostnames",
    parent(`{ ${to("child")} }`) + route("child", `hostnames: [b.test], rules: [{ ${WEB} }]`),
    "500",
  ],
  [
    "a child of other parents",
    parent(`{ ${to("child")} }`) +
      route("child", `parentRefs: [{ kind: HTTPRoute, name: other }], rules: [{ ${WEB} }]`),
    "500",
  ],
  [
    "a child in another namespace",
    parent("{ backendRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: child, namespace: far }] }") +
      route("child", `rules: [{ ${WEB} }]`, "far"),
    "500",
  ],
  [
    "a Service beside the child",
    parent(
      "{ backendRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: child }, { name: web, port: 8080 }] }",
    ) + child(`{ ${WEB} }`),
    "closed",
  ],
  [
    "a weight",
    parent("{ backendRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: child, weight: 2 }] }") +
      child(`{ ${WEB} }`),
    "closed",
  ],
  [
    "a path that is not a prefix",
    parent(`{ matches: [{ path: { type: Exact, value: /a } }], ${to("child")} }`) + child(`{ ${WEB} }`),
    "closed",
  ],
  [
    "a rewritten prefix",
    parent(
      `{ filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /b } } }], ${to("child")} }`,
    ) + child(`{ ${WEB} }`),
    "closed",
  ],
];
for (const [what, yaml, state] of REFUSED)
  test(`a rule cannot delegate with ${what}`, () => {
    const all = served(yaml);
    assert.equal(all.length, 1);
    assert.ok(all[0]?.endsWith(state), all[0]);
  });

test("a regular expression of a child below a prefix is blocked", () => {
  const regex = "matches: [{ path: { type: RegularExpression, value: '/a/[0-9]+' } }]";
  assert.deepEqual(served(parent(`{ ${prefix("/a")}, ${to("child")} }`) + child(`{ ${regex}, ${WEB} }`)), [
    "a.test root/default/child/rule0 /a closed",
    "a.test root /a open",
  ]);
});

test("a child that replaces a prefix must have the prefix itself", () => {
  const filter =
    "filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /b } } }]";
  const root = parent(`{ ${prefix("/a")}, ${to("child")} }`);
  assert.deepEqual(served(root + child(`{ ${prefix("/a/c")}, ${filter}, ${WEB} }, { ${filter}, ${WEB} }`)), [
    "a.test root/default/child/rule0 /a/c open",
    "a.test root/default/child/rule1 /a closed",
    "a.test root /a open",
  ]);
});

test("nested delegation cannot write more than 1,000 rules", () => {
  const rules = Array.from({ length: 16 }, () => `{ ${to("next")} }`).join();
  const names = ["one", "two", "three", "four"];
  const levels = names.map((name, i) => route(name, `rules: [${rules.replaceAll("next", names[i + 1] ?? "leaf")}]`));
  const { routes } = translate(
    GATEWAY + parent(`{ ${to("one")} }`) + levels.join("") + route("leaf", `rules: [{ ${WEB} }]`),
  );
  assert.ok(routes.length <= 1_001, String(routes.length));
  assert.ok(routes.some(({ closedBackends }) => closedBackends !== undefined));
});

test("policies of the parent apply to the rules of its children, before those of the children", () => {
  const world = GATEWAY + parent(`{ ${prefix("/shop")}, ${to("child")} }`) + child(`{ name: cart, ${WEB} }`);
  const target = (name: string, more = ""): string =>
    `targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: ${name}${more} }]`;
  const attachedTo = (yaml: string): string[] =>
    translate(world + yaml).attachments.map(
      ({ target: { name }, kind, written }) => `${name} ${kind} ${JSON.stringify(written)}`,
    );
  const names = (yaml: string): string[] => attachedTo(yaml).map((one) => one.split(" ")[0] ?? "");
  assert.deepEqual(names(policy(`${target("root")}\n${LIMIT}`)), ["root/default/child/cart", "root"]);
  assert.deepEqual(names(policy(`${target("child")}\n${LIMIT}`)), ["root/default/child/cart"]);
  assert.deepEqual(names(policy(`${target("child", ", sectionName: cart")}\n${LIMIT}`)), ["root/default/child/cart"]);
  const timeouts = (name: string, time: string): string =>
    policy(`${target(name)}\ntraffic: { timeouts: { request: ${time} } }`, `of-${name}`);
  // The policy of the child is the first by its name.
  const both = timeouts("child", "9s") + timeouts("root", "5s");
  assert.deepEqual(attachedTo(both), [
    'root/default/child/cart timeout {"requestTimeout":"5s"}',
    'root timeout {"requestTimeout":"5s"}',
  ]);
  const [ofChild] = translate(world + both).policies;
  assert.match(String(conditions(ofChild)), /Conflicted: .*already has timeout from GatewayPolicy default\/of-root/);
});

const CLUSTER = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: gateway }
spec: { controllerName: policy.gateway.internal/gateway }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: infra }
spec: { gatewayClassName: gateway, listeners: [{ name: http, port: 80, protocol: HTTP }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: root, namespace: infra }
spec:
  parentRefs: [{ name: edge }]
  rules: [{ backendRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: child, namespace: team }] }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: child, namespace: team, generation: 4 }
spec:
  parentRefs: [{ kind: HTTPRoute, name: root, namespace: infra }]
  rules: [{ backendRefs: [{ name: web, port: 80 }] }]
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: team }
spec: { ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Secret
metadata: { name: key, namespace: team }
data: { token: c2VzYW1l }
---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: own, namespace: team }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: child }]
  traffic: { backendAuth: { key: { secretRef: { name: key, key: token } } } }
`;
const GRANT = `
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: { name: delegation, namespace: team }
spec:
  from: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra }]
  to: [{ group: gateway.networking.k8s.io, kind: HTTPRoute }]
`;
const STATE = { programmed: { isTrue: true, reason: "Programmed", message: "" }, addresses: [], refused: new Map() };

function view(yaml: string) {
  const objects = parseAllDocuments(yaml).map((document) => document.toJS() as unknown);
  const created = createClusterView(objects.filter(isKubernetesObject), 0);
  const { documents = [] } = created.snapshots.get("infra/edge") ?? {};
  const statuses = desiredStatuses(created, () => STATE, 0);
  return { created, documents, kinds: documents.map(({ kind }) => kind), statuses };
}

test("a child in another namespace needs a ReferenceGrant, and its data plane gets nothing without it", () => {
  const without = view(CLUSTER);
  assert.deepEqual(without.kinds, ["Gateway", "HTTPRoute"]);
  assert.match(
    JSON.stringify(without.statuses.find(({ object }) => object.metadata.name === "root")?.status),
    /RefNotPermitted/,
  );
  assert.equal(
    without.statuses.find(({ object }) => object.metadata.name === "child"),
    undefined,
  );
  const granted = view(CLUSTER + GRANT);
  for (const kind of ["GatewayPolicy", "Secret", "Service", "ReferenceGrant"])
    assert.ok(granted.kinds.includes(kind), kind);
  const status = JSON.stringify(granted.statuses.find(({ object }) => object.metadata.name === "child")?.status);
  assert.match(status, /"kind":"HTTPRoute","name":"root".*"Accepted","status":"True"/);
});

test("a data plane serves the same routes as its controller", () => {
  const { created, documents } = view(CLUSTER + GRANT);
  const gatewayClass = parseAllDocuments(CLUSTER)[0]?.toJS() as (typeof documents)[number];
  const again = createClusterView([gatewayClass, ...documents], 0);
  const namesOf = ({ result }: typeof created) => [
    result.routes.map(({ route: { name } }) => name),
    result.attachments.map(({ target }) => target.name),
  ];
  assert.deepEqual(namesOf(again), namesOf(created));
  assert.deepEqual(namesOf(created), [["infra/root/team/child/rule0", "infra/root"], ["infra/root/team/child/rule0"]]);
});
