import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { restrictNetworks } from "../../http/local-address.ts";
import { policies } from "../../policies/index.ts";
import { configSchema } from "../schema/schema.ts";
import { createCluster, isKubernetesObject, type KubernetesObject } from "./cluster.ts";
import type { ResourceResult } from "./documents.ts";
import { clusterDocument } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

const BASE = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge, namespace: shop }
spec: { gatewayClassName: gateway, listeners: [{ name: http, port: 80, protocol: HTTP }] }
---
apiVersion: v1
kind: Secret
metadata: { name: keys, namespace: shop }
data: { key: ${Buffer.from("sesame\n").toString("base64")}, empty: "" }
---
apiVersion: v1
kind: Secret
metadata: { name: theirs, namespace: other }
data: { key: ${Buffer.from("not yours").toString("base64")} }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: web, namespace: shop }
spec:
  parentRefs: [{ name: edge }]
  rules: [{ backendRefs: [{ group: policy.gateway.internal, kind: Backend, name: own }] }]
`;

const backend = (spec: string, namespace = "shop", version = "policy.gateway.internal/v1alpha1"): string => `
---
apiVersion: ${version}
kind: Backend
metadata: { name: own, namespace: ${namespace} }
spec: ${spec}
`;

function objectsOf(yaml: string): KubernetesObject[] {
  return parseAllDocuments(yaml)
    .map((document) => document.toJS() as unknown)
    .filter(isKubernetesObject);
}

function translate(yaml: string, isCluster = true): ResourceResult {
  const objects = objectsOf(yaml);
  return translateResources({
    documents: objects.map(clusterDocument),
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    ...(isCluster ? { cluster: createCluster(objects) } : {}),
    nowMs: 0,
  });
}

const told = ({ backendOutcomes, routeOutcomes, routes }: ResourceResult) => ({
  backend: `${backendOutcomes[0]?.accepted.isTrue} ${backendOutcomes[0]?.accepted.reason}`,
  message: backendOutcomes[0]?.accepted.message ?? "",
  refs: routeOutcomes[0]?.parents[0]?.resolvedRefs,
  closed: [...(routes[0]?.closedBackends?.keys() ?? [])],
  written: routes[0]?.route.backends?.[0],
});

test("a route goes to MCP servers, models and hosts of a Backend, with secrets from its namespace", () => {
  for (const [spec, written] of [
    ["{ host: api.example.com:443 }", { host: "api.example.com:443" }],
    [
      "{ mcp: { targets: [{ name: a, mcp: { url: 'https://mcp.example.com/mcp' } }] } }",
      { mcp: { targets: [{ name: "a", mcp: { url: "https://mcp.example.com/mcp" } }] } },
    ],
    [
      "{ ai: { provider: { openAI: {} }, auth: { key: { secretRef: { name: keys, key: key } } } } }",
      { ai: { provider: { openAI: {} }, auth: { key: "sesame" } } },
    ],
  ] as const) {
    const result = told(translate(BASE + backend(spec)));
    assert.deepEqual([result.backend, result.refs?.isTrue, result.closed], ["true Accepted", true, []], result.message);
    assert.deepEqual(result.written, written);
  }
});

const REFUSED: Record<string, [spec: string, message: RegExp]> = {
  "a process": [
    "{ mcp: { targets: [{ name: a, stdio: { cmd: sh } }] } }",
    /targets\[0\]\.stdio: .*cannot use a process/,
  ],
  "a unix socket": ["{ host: 'unix:/run/x.sock' }", /host: .*cannot use a unix socket/],
  "a unix socket in capitals": ["{ host: 'UNIX:/run/x.sock' }", /cannot use a unix socket/],
  "a model over a unix socket": [
    "{ ai: { provider: { openAI: {} }, hostOverride: 'unix:/run/x.sock' } }",
    /hostOverride: .*cannot use a unix socket/,
  ],
  "a key from a file": [
    "{ ai: { provider: { openAI: {} }, auth: { file: /var/run/secrets/token } } }",
    /auth\.file: .*cannot use a file/,
  ],
  "credentials of the machine": [
    "{ ai: { provider: { bedrock: { region: us-east-1 } }, auth: { aws: {} } } }",
    /auth\.aws: .*cannot use credentials of this machine/,
  ],
  "prices from a file": [
    "{ ai: { provider: { demo: {} }, modelCatalog: /etc/passwd } }",
    /modelCatalog: .*use secretRef/,
  ],
  "an API description from a file": [
    "{ mcp: { targets: [{ name: a, openapi: { file: /etc/passwd } }] } }",
    /openapi\.file: .*cannot use a file/,
  ],
  "a Secret of another namespace": [
    "{ ai: { provider: { openAI: {} }, auth: { key: { secretRef: { name: theirs, namespace: other, key: key } } } } }",
    /is in another namespace/,
  ],
  "a Secret that is not there": [
    "{ ai: { provider: { openAI: {} }, auth: { key: { secretRef: { name: gone, key: key } } } } }",
    /Secret shop\/gone was not found/,
  ],
  "an empty key": [
    "{ ai: { provider: { openAI: {} }, auth: { key: { secretRef: { name: keys, key: empty } } } } }",
    /is empty/,
  ],
  "an unknown field": ["{ host: 'a.example.com:80', auth: {} }", /nrecognized|unknown/],
  "a misspelt credential": ["{ ai: { provider: { openAI: {} }, atuh: {} } }", /nrecognized|unknown/],
  "a credential that is null": ["{ ai: { provider: { openAI: {} }, auth: null } }", /spec\.ai\.auth/],
  "two kinds": ["{ host: 'a.example.com:80', ai: { provider: { demo: {} } } }", /only one of/],
  "no kind": ["{ }", /one of `mcp`, `ai`, `host` is required/],
  "a Service by its name": ["{ service: { name: 'other/web:80' } }", /nrecognized|unknown|required/],
};

for (const [what, [spec, message]] of Object.entries(REFUSED)) {
  test(`a Backend with ${what} is refused, and its share of the requests gets 500`, () => {
    const result = told(translate(BASE + backend(spec)));
    assert.equal(result.backend, "false Invalid");
    assert.match(result.message, message);
    assert.deepEqual(result.closed, [0]);
    assert.deepEqual([result.refs?.isTrue, result.refs?.reason], [false, "InvalidBackend"]);
    assert.ok(!JSON.stringify(result.written).includes("sesame"));
  });
}

test("a Backend of another namespace needs a grant, and says nothing of what is wrong with it", () => {
  const route = BASE.replace("name: own }", "name: own, namespace: other }");
  const grant = `
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: { name: g, namespace: other }
spec:
  from: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop }]
  to: [{ group: policy.gateway.internal, kind: Backend }]
`;
  const good = backend("{ host: api.example.com:443 }", "other");
  assert.equal(told(translate(route + good)).refs?.reason, "RefNotPermitted");
  assert.equal(told(translate(route + good + grant)).refs?.isTrue, true);
  const bad = told(translate(route + backend("{ host: 'unix:/x' }", "other") + grant));
  assert.equal(bad.refs?.message, "Backend other/own is not valid");
  // Its secrets are those of its own namespace, not of the route's.
  const theirs = "{ ai: { provider: { openAI: {} }, auth: { key: { secretRef: { name: theirs, key: key } } } } }";
  assert.equal(told(translate(route + backend(theirs, "other") + grant)).refs?.isTrue, true);
  const ours = "{ ai: { provider: { openAI: {} }, auth: { key: { secretRef: { name: keys, key: key } } } } }";
  assert.equal(told(translate(route + backend(ours, "other") + grant)).refs?.reason, "InvalidBackend");
});

test("one that is not there, of another group or of another version leads nowhere", () => {
  assert.equal(told(translate(BASE)).refs?.reason, "BackendNotFound");
  const foreign = BASE.replace("group: policy.gateway.internal", "group: example.com");
  assert.equal(told(translate(foreign + backend("{ host: a.example.com:80 }"))).refs?.reason, "InvalidKind");
  const version = told(translate(BASE + backend("{ host: a.example.com:80 }", "shop", "policy.gateway.internal/v9")));
  assert.deepEqual([version.backend, version.closed], ["false Invalid", [0]]);
});

test("requests cannot be mirrored to a Backend", () => {
  const mirror =
    "filters: [{ type: RequestMirror, requestMirror: { backendRef: { group: policy.gateway.internal, kind: Backend, name: own } } }], backendRefs:";
  const result = told(translate(BASE.replace("backendRefs:", mirror) + backend("{ host: a.example.com:80 }")));
  assert.equal(result.refs?.reason, "InvalidKind");
});

test("in files a route can name a Backend, too", () => {
  const result = told(translate(BASE + backend("{ mcp: { targets: [{ name: a, stdio: { cmd: node } }] } }"), false));
  assert.deepEqual([result.backend, result.refs?.isTrue], ["true Accepted", true]);
  const foreign = translate(BASE + backend("{}", "shop", "gateway.example.com/v1"), false);
  assert.match(foreign.problems.map((problem) => problem.toLine()).join("\n"), /Backend is not supported, ignored/);
});

const SERVICES = `
---
apiVersion: v1
kind: Service
metadata: { name: tools, namespace: shop }
spec: { ports: [{ port: 80 }] }
---
apiVersion: v1
kind: Service
metadata: { name: alias, namespace: shop }
spec: { type: ExternalName, externalName: web.other.svc }
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: other }
spec: { ports: [{ port: 80 }] }
`;
const GRANT = `
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: { name: web, namespace: other }
spec:
  from: [{ group: policy.gateway.internal, kind: Backend, namespace: shop }]
  to: [{ group: "", kind: Service, name: web }]
`;

function hostVerdict(host: string, more = ""): string {
  const [outcome] = translate(BASE + SERVICES + more + backend(`{ host: "${host}" }`)).backendOutcomes;
  return outcome?.accepted.isTrue ? "accepted" : (outcome?.accepted.message ?? "");
}

test("a Backend names no addresses, and Services of other namespaces only with a grant", () => {
  for (const host of ["10.96.0.5:80", "8.8.8.8:53", "[fd00::1]:80", "http://0x0a600005", "https://10.1"])
    assert.match(
      hostVerdict(host),
      /^spec\.host: the address \S+ is not in the networks that the operator allows/,
      host,
    );
  for (const host of ["web.other.svc:80", "http://WEB.other.svc.cluster.local.", "a.web.other.svc:80"]) {
    assert.match(hostVerdict(host), /^spec\.host: Service other\/web is in another namespace/, host);
    assert.equal(hostVerdict(host, GRANT), "accepted", host);
  }
  for (const host of ["tools.shop.svc:80", "api.example.com:443", "https://svc.example.com"])
    assert.equal(hostVerdict(host), "accepted", host);
  for (const host of ["web.other:80", "a.web.other:80", "web:80", "10-96-0-5.other.pod:80", "a.cluster.local:80"])
    assert.match(hostVerdict(host), /write <service>\.<namespace>\.svc for a Service$/, host);
  assert.match(hostVerdict("alias.shop.svc:80"), /ExternalName/);
  assert.match(hostVerdict("gone.shop.svc:80"), /was not found/);
});

test("the operator allows networks", (t) => {
  t.after(() => restrictNetworks(undefined));
  restrictNetworks("10.20.0.0/16");
  assert.equal(hostVerdict("10.20.3.4:80"), "accepted");
  assert.match(hostVerdict("10.21.3.4:80"), /is not in the networks/);
});

test("addresses in nested fields of a Backend and in policies are checked", () => {
  const rows = [
    "{ mcp: { targets: [{ name: a, mcp: { url: 'http://10.96.0.5/mcp' } }] } }",
    "{ ai: { provider: { openAICompatible: { baseUrl: 'http://web.other.svc/v1' } } } }",
    "{ ai: { provider: { openAI: {} }, hostOverride: '10.96.0.5:80' } }",
  ];
  for (const row of rows)
    assert.equal(translate(BASE + SERVICES + backend(row)).backendOutcomes[0]?.accepted.isTrue, false, row);
  const policy = (traffic: string) => `
---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: check, namespace: shop }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: web }]
  traffic: ${traffic}
`;
  const closed = (traffic: string): number =>
    translate(BASE + SERVICES + backend("{ host: 'a.example:80' }") + policy(traffic)).closures.length;
  const keys = "issuer: 'https://kubernetes.default.svc', audiences: [a]";
  assert.equal(closed("{ extAuthz: { host: 'web.other.svc:9000' } }"), 1);
  assert.equal(closed("{ extAuthz: { host: 'tools.shop.svc:9000' } }"), 0);
  assert.equal(closed(`{ jwtAuthentication: { ${keys} } }`), 1, "the keys are fetched from the issuer");
  assert.equal(closed(`{ jwtAuthentication: { ${keys}, jwks: { inline: '{"keys":[]}' } } }`), 0);
});
